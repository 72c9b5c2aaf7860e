/* regress.c: a fuzz target on the files it is given, without an engine: how a corpus is replayed. */
#include "fuzz.h"
#include "../native/host.h"

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    size_t n;
    uint8_t *bytes = host_read(argv[i], &n);
    LLVMFuzzerTestOneInput(bytes, n);
    free(bytes);
  }
  printf("%s: %d inputs\n", argv[0], argc - 1);
  return 0;
}
