# Sourced. Where fetched toolchains stand: $cache/KIND-VERSION, whole once its file `complete` exists.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tabllama

# cached KIND: the whole ones, newest first.
cached() {
  ls -d "$cache/$1"-*/complete 2>/dev/null | sort -rV | sed 's,/complete$,,'
}
