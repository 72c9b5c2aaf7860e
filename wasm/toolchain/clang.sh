#!/bin/bash
# Plain clang >= 19 with its wasm-ld, out of the machine's own apt sources, into $cache/clang-VERSION;
# setup.sh holds the lock. Made beside and renamed at the end: its wrappers find their way by their
# own place.
set -euo pipefail
here=$(dirname "$0")
. "$here/cache.sh"
. "$here/apt.sh"

new=$cache/clang-new
trap 'rm -rf "$new"' EXIT
rm -rf "$new"
mkdir -p "$new/bin" "$new/root" "$new/debs"
private_apt "$new/apt"
v=
for n in 21 20 19; do
  [ "$(apt-cache policy clang-$n lld-$n 2>/dev/null | grep -c 'Candidate: [^(]')" = 2 ] && { v=$n; break; }
done
[ -n "$v" ] || { echo "toolchain: this machine's apt sources have no clang >= 19" >&2; exit 1; }
(cd "$new/debs" && retry apt-get -qq download $(closure "$(llvm_closure $v)" clang-$v lld-$v))
for d in "$new"/debs/*.deb; do dpkg-deb -x "$d" "$new/root"; done
rm -rf "$new/debs" "$new/apt" "$new/root/usr/share" "$new/root/etc"
for p in clang wasm-ld; do # the name it is called by tells lld its flavour
  cat > "$new/bin/$p" <<C
#!/bin/bash
lib=\$(dirname "\$(readlink -f "\$0")")/../root/usr/lib
LD_LIBRARY_PATH=\$(echo "\$lib"/*-linux-gnu*) exec -a "\$lib/llvm-$v/bin/$p" "\$lib/llvm-$v/bin/$p" "\$@"
C
  chmod +x "$new/bin/$p"
done
touch "$new/complete"
rm -rf "$cache/clang-$v"
mv "$new" "$cache/clang-$v"
