#!/bin/sh
# npm run setup: makes sure that there is a compiler for WebAssembly. A fit Emscripten on PATH or in
# the cache is used as it is. Otherwise one comes out of a newer Debian suite, beside the system and
# without root; where that fails, plain clang >= 19 with its wasm-ld, which builds the same modules.
here=$(dirname "$0")
. "$here/cache.sh"

found() { toolchain=$(sh "$here/find.sh" "$@" 2>/dev/null) && echo "toolchain: $(echo "$toolchain" | head -n 1)"; }

if [ -n "$WASM_CC" ]; then sh "$here/find.sh" >/dev/null && found; exit; fi
found emcc && exit
if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null && command -v flock >/dev/null; then
  mkdir -p "$cache" || exit 1
  exec 9>"$cache/lock"
  flock -n 9 || { echo "toolchain: another set-up is at work, waiting for it"; flock 9; }
  found emcc && exit
  for suite in forky trixie; do
    echo "toolchain: fetching Emscripten from Debian's $suite into $cache"
    bash "$here/emscripten.sh" "$suite" && found emcc && exit
  done
  echo "toolchain: no Emscripten could be had, so plain clang"
  found && exit
  bash "$here/clang.sh" && found && exit
else
  found && exit
fi
echo "toolchain: no compiler for WebAssembly could be had. Install Emscripten (emsdk), or LLVM >= 19 with lld, and put it on PATH" >&2
exit 1
