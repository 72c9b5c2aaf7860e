#!/bin/bash
# emscripten.sh SUITE: Emscripten out of that Debian suite into $cache/emscripten-VERSION; setup.sh
# holds the lock. Its programs want a newer glibc than the machine's, so the suite's own loader and
# libraries are written into them (patchelf). The paths are absolute: it is unpacked where it will
# stay, and is whole once its file `complete` exists.
set -euo pipefail
here=$(dirname "$0")
. "$here/cache.sh"
. "$here/apt.sh"
suite=$1

python3 -c 'import sys, json, multiprocessing; sys.exit(sys.version_info < (3, 10))' ||
  { echo "toolchain: Emscripten needs python3 >= 3.10" >&2; exit 1; }
# The mirror is the machine's own: no host is named here.
mirror=$(apt-get indextargets --format '$(CREATED_BY) $(REPO_URI)' | awk '$1 == "Packages" && $2 ~ /\/debian\/?$/ { print $2; exit }')
[ -n "$mirror" ] || { echo "toolchain: no Debian mirror among this machine's apt sources" >&2; exit 1; }

rm -rf "$cache/apt"
t=
trap 'rm -rf "$cache/apt" ${t:+"$t"}' EXIT
private_apt "$cache/apt" "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
version=$(apt-cache show emscripten | sed -n 's/^Version: \([^~+-]*\).*/\1/p' | head -n 1)
v=$(apt-cache show emscripten | grep -oE 'clang-[0-9]+' | head -n 1); v=${v#clang-}
t=$cache/emscripten-$version
rm -rf "$t"
mkdir -p "$t/bin" "$t/root" "$t/debs"
want=$(closure "emscripten|binaryen|patchelf|node-acorn|llvm-$v|libc6|libgcc-s1|libstdc\+\+6|$(llvm_closure "$v")" emscripten lld-$v patchelf)
(cd "$t/debs" && retry apt-get -qq download $want)
for d in "$t"/debs/*.deb; do # without the prebuilt libraries, 1.6 GB in trixie: the engine has no libc
  dpkg-deb --fsys-tarfile "$d" | tar -x -C "$t/root" --exclude='./usr/share/emscripten/cache/*' \
    --exclude='./usr/share/emscripten/test/*' --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*'
done
rm -rf "$t/debs" "$cache/apt"

lib=$(echo "$t"/root/usr/lib/*-linux-gnu*)
loader=$(find "$t/root/usr/lib" -name 'ld-linux*.so.*' -print -quit)
patch() { "$loader" --inhibit-cache --library-path "$lib" "$t/root/usr/bin/patchelf" "$@"; }
for f in "$lib"/libLLVM*.so* "$lib"/libclang*.so* "$lib"/libbinaryen.so; do
  [ -L "$f" ] || [ ! -e "$f" ] || patch --remove-rpath "$f"
done
for f in "$t/root/usr/lib/llvm-$v"/bin/* "$t"/root/usr/bin/wasm-*; do
  if [ ! -L "$f" ] && [ "$(head -c 4 "$f")" = "$(printf '\177ELF')" ]; then
    patch --set-interpreter "$loader" --force-rpath --set-rpath "$lib" "$f"
  fi
done
cat > "$t/config" <<C
LLVM_ROOT = '$t/root/usr/lib/llvm-$v/bin'
BINARYEN_ROOT = '$t/root/usr'
NODE_JS = 'node'
CACHE = '$t/cache'
LLVM_ADD_VERSION = ''
CLANG_ADD_VERSION = ''
C
for p in emcc em-config; do
  printf '#!/bin/sh\nEM_CONFIG="%s/config" exec "%s/root/usr/share/emscripten/%s" "$@"\n' "$t" "$t" $p > "$t/bin/$p"
  chmod +x "$t/bin/$p"
done
# The first compilation lays out its headers, once: nothing is written here afterwards.
echo 'int x;' | "$t/bin/emcc" -x c -c - -o /dev/null
touch "$t/complete"
t=
