#!/bin/sh
# Prints two lines, the compiler command and the linker, of the first toolchain that can build every
# variant; fails if there is none. It asks by compiling and linking a probe, never by version number:
# Debian 12's own emcc 3.1.6 and clang 14 are passed over that way.
#   find.sh         $WASM_CC with $WASM_LD; Emscripten on PATH, then in the cache; clang on PATH, then
#                   in the cache
#   find.sh emcc    Emscripten only
. "$(dirname "$0")/cache.sh"

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cat > "$tmp/probe.c" <<'C'
#include <stddef.h>
#include <stdint.h>
#include <wasm_simd128.h>
static int word;
__attribute__((visibility("default"))) int probe(int8_t *a, int8_t *b, size_t n) {
  __builtin_memset(a, 0, n);
  __builtin_wasm_memory_atomic_wait32(&word, 0, 0);
  return wasm_i32x4_extract_lane(wasm_i32x4_relaxed_dot_i8x16_i7x16_add(
    wasm_v128_load(a), wasm_v128_load(b), wasm_i32x4_splat(0)), 0);
}
C

# fit COMPILER LINKER: prints both if they pass. COMPILER is split into words.
fit() {
  command -v "${1%% --target=*}" >/dev/null 2>&1 && command -v "$2" >/dev/null 2>&1 || return 1
  set -f
  $1 -std=c11 -O1 -ffreestanding -fvisibility=hidden -msimd128 -mrelaxed-simd -matomics -mbulk-memory \
    -c "$tmp/probe.c" -o "$tmp/probe.o" >>"$tmp/log" 2>&1 &&
  "$2" --no-entry --import-memory --shared-memory --max-memory=1048576 --export-dynamic \
    --export=__stack_pointer "$tmp/probe.o" -o "$tmp/probe.wasm" >>"$tmp/log" 2>&1 || return 1
  printf '%s\n%s\n' "$1" "$2"
  exit 0
}
# emscripten FOLDER: the emcc there, with the wasm-ld of its own LLVM.
emscripten() {
  [ -x "$1/emcc" ] && llvm=$("$1/em-config" LLVM_ROOT 2>>"$tmp/log") && fit "$1/emcc" "$llvm/wasm-ld"
}

if [ -n "$WASM_CC" ]; then
  fit "$WASM_CC" "${WASM_LD:-wasm-ld}"
  { echo "WASM_CC=$WASM_CC with WASM_LD=${WASM_LD:-wasm-ld} cannot build the variants:"; cat "$tmp/log"; } >&2
  exit 1
fi
emcc=$(command -v emcc) && emscripten "$(dirname "$emcc")"
for d in $(cached emscripten); do emscripten "$d/bin"; done
if [ "$1" != emcc ]; then
  fit 'clang --target=wasm32' wasm-ld
  for v in 25 24 23 22 21 20 19; do fit "clang-$v --target=wasm32" "wasm-ld-$v"; done
  for d in /opt/homebrew/opt /usr/local/opt; do
    fit "$d/llvm/bin/clang --target=wasm32" "$d/llvm/bin/wasm-ld"
    fit "$d/llvm/bin/clang --target=wasm32" "$d/lld/bin/wasm-ld"
  done
  for d in $(cached clang); do fit "$d/bin/clang --target=wasm32" "$d/bin/wasm-ld"; done
fi
echo "no compiler for WebAssembly found: 'npm run setup' brings one, or put Emscripten (emsdk) or LLVM >= 19 with lld on PATH" >&2
exit 1
