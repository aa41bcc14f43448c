// An NVSHMEM that does nothing but to give memory, and counts how often it is called.
#include <cstddef>
#include <cstdint>

extern "C" int cuMemAlloc_v2(unsigned long long* memory, std::size_t bytes);
extern "C" int cuMemFree_v2(unsigned long long memory);

namespace {
unsigned long calls = 0;
}

extern "C" {
unsigned long idle_nvshmem_calls() { return calls; }

int nvshmemx_get_uniqueid(void*) { return 0; }
int nvshmemx_set_attr_uniqueid_args(int, int, const void*, void*) { return 0; }
int nvshmemx_hostlib_init_attr(unsigned, void*) { return 0; }
void nvshmemx_hostlib_finalize() {}
void* nvshmem_malloc(std::size_t bytes) {
  unsigned long long memory = 0;
  return cuMemAlloc_v2(&memory, bytes) == 0 ? reinterpret_cast<void*>(memory) : nullptr;
}
void nvshmem_free(void* memory) { cuMemFree_v2(reinterpret_cast<unsigned long long>(memory)); }
void nvshmemx_putmem_on_stream(void*, const void*, std::size_t, int, void*) { ++calls; }
void nvshmemx_putmem_signal_on_stream(void*, const void*, std::size_t, std::uint64_t*,
                                      std::uint64_t, int, int, void*) {
  ++calls;
}
void nvshmemx_signal_op_on_stream(std::uint64_t*, std::uint64_t, int, int, void*) { ++calls; }
void nvshmemx_signal_wait_until_on_stream(std::uint64_t*, int, std::uint64_t, void*) { ++calls; }
void nvshmemx_quiet_on_stream(void*) { ++calls; }
void nvshmemx_barrier_all_on_stream(void*) { ++calls; }
int nvshmemx_fcollectmem_on_stream(int, void*, const void*, std::size_t, void*) {
  ++calls;
  return 0;
}
int nvshmemx_alltoallmem_on_stream(int, void*, const void*, std::size_t, void*) {
  ++calls;
  return 0;
}
int nvshmemx_double_sum_reduce_on_stream(int, void*, const void*, std::size_t, void*) {
  ++calls;
  return 0;
}
}
