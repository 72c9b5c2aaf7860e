# make layers: a file of src/ includes only lower levels, kernels only what the shape sheet needs.
# lm.h, the contract, and error.h are numbers and sentences: level 0, as lm.c is the top. A module in
# several files, like model_keys.c, goes by its first word; attention.c and experts.c are of forward.
BEGIN {
  split("base error lm.h platform|fmath arena quant team|gguf kernels|kernels_ref model kv|forward sample|lm.c", rows, "|")
  for (i in rows) for (j = split(rows[i], names, " "); j > 0; j--) level[names[j]] = i + 0
}
function key(path) {
  sub(/.*\//, "", path)
  if (!(path in level)) sub(/\.[a-z]+$/, "", path)
  if (!(path in level)) sub(/_.*/, "", path)
  sub(/^(attention|experts)$/, "forward", path)
  return path
}
/^#include "[^"]*\.h"/ {
  split($0, quoted, "\""); to = key(quoted[2]); from = key(FILENAME)
  if (FILENAME ~ /^wasm\/(vec|kernels)/) bad = (to in level) && to !~ /^(base|lm\.h|quant|kernels)$/
  else if (FILENAME ~ /^src\/quants\//) bad = to != "quant" && to != "base"
  else if (FILENAME ~ /^src\//) bad = from != to && level[from] > 1 && level[to] >= level[from] || !(from in level) || !(to in level)
  else bad = to !~ /^(base|platform)$/
  if (bad) { print FILENAME ":" FNR ": must not include " quoted[2]; failed = 1 }
}
END { exit failed }
