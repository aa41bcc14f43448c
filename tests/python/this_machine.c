/* The simulated driver as that of this machine: it finds its node, and the engine is told of none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

int cuInit(unsigned int flags) {
  int (*const next)(unsigned int) = (int (*)(unsigned int))dlsym(RTLD_NEXT, "cuInit");
  setenv("POLYPATH_NODE", getenv("TEST_NODE"), 1);
  const int result = next(flags);
  unsetenv("POLYPATH_NODE");
  return result;
}
