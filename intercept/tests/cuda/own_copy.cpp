// Has a function of a name that the shim replaces, and nothing to do with the driver.
extern "C" [[gnu::visibility("default")]] int cuMemcpyDtoDAsync_v2() { return 4711; }
