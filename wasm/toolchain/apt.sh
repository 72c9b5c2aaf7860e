# Sourced by bash scripts. An apt of our own: lists, cache and an empty dpkg status in a folder, so
# that it needs no root, changes nothing of the system, and resolves packages down to libc.

retry() { for pause in 2 10 0; do "$@" && return; sleep $pause; done; return 1; }

# private_apt FOLDER [SOURCE LINE]: the machine's own sources, or that line alone. Dir::Etc stays the
# machine's, since its apt.conf.d may hold proxy and mirror settings.
private_apt() {
  mkdir -p "$1"/{lists/partial,cache/archives/partial,none}
  : > "$1/status"
  {
    echo "Dir::State \"$1\"; Dir::State::lists \"$1/lists\"; Dir::State::status \"$1/status\";"
    echo "Dir::Cache \"$1/cache\"; Dir::Cache::archives \"$1/cache/archives\"; APT::Install-Recommends \"false\";"
    echo "Acquire::Languages \"none\"; Acquire::Retries \"3\"; Debug::NoLocking \"true\"; APT::Sandbox::User \"\";"
    if [ -n "${2:-}" ]; then
      echo "Dir::Etc::SourceList \"$1/sources.list\"; Dir::Etc::SourceParts \"$1/none\";"
      echo "Dir::Etc::Preferences \"/dev/null\"; Dir::Etc::PreferencesParts \"$1/none\";"
      echo "$2" > "$1/sources.list"
    fi
  } > "$1/apt.conf"
  export APT_CONFIG=$1/apt.conf
  retry apt-get -qq update
}

# closure PATTERN PACKAGE...: names of everything these packages need, of that what PATTERN matches.
closure() {
  local pattern=$1; shift
  apt-get install --print-uris -y -qq "$@" | sed -E "s/^'[^']*' ([^_]*)_.*/\1/" | grep -E "^($pattern)$"
}

# What clang and wasm-ld load beyond libc, libgcc_s and libstdc++.
llvm_closure() {
  echo "clang-$1|lld-$1|libclang-common-$1-dev|libclang-cpp$1|libllvm$1|libclang1-$1|libedit2|libz3-[0-9.]+|libxml2.*|libicu[0-9]+|libbsd0|libmd0|libtinfo6|libffi[0-9]+|zlib1g|libzstd1|liblzma5"
}
