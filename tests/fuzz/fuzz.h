/* fuzz.h: what the fuzz targets share: libFuzzer's entry, and a check that ends the process. */
#pragma once
#include <stdlib.h>
#include <string.h>

#include "lm.h"

#define FUZZ_CHECK(condition) ((condition) ? (void)0 : abort())
#define fuzz_copy memcpy

/* One input; the return value is always 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
