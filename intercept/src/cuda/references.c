/* Ordinary references to the driver's copies, as programs and libraries have them that are linked
 * with the driver (UCX): once this library is loaded, each pointer holds what the dynamic linker
 * bound the name to. For a program that has no such references of its own: polypath doctor, which
 * is Python. It has to load the driver first, visible to all. */

#define REFERENCE(name)                                 \
  extern void name(void);                               \
  extern void (*const polypath_reference_##name)(void); \
  __attribute__((visibility("default"))) void (*const polypath_reference_##name)(void) = name;

REFERENCE(cuMemcpyHtoDAsync_v2)
REFERENCE(cuMemcpyDtoDAsync_v2)
REFERENCE(cuMemcpyDtoHAsync_v2)
