#include "support/gate.hpp"

namespace polypath::test {

Gate::Gate(const CudaDriver& driver, CUcontext context) : driver_(driver), context_(context) {
  const CurrentContext current(driver, context);
  void* memory = nullptr;
  POLYPATH_CHECK(driver, mem_host_alloc(&memory, sizeof *word_, CU_MEMHOSTALLOC_PORTABLE));
  word_ = static_cast<std::uint32_t*>(memory);
  *word_ = 0;
}

Gate::~Gate() {
  open();
  for (const CUcontext held : held_) {
    const CurrentContext current(driver_, held, std::nothrow);
    POLYPATH_WARN(driver_, ctx_synchronize());
  }
  const CurrentContext current(driver_, context_, std::nothrow);
  POLYPATH_WARN(driver_, mem_free_host(word_));
}

void Gate::hold(CUstream stream, CUcontext context) {
  const CurrentContext current(driver_, context);
  held_.insert(context);
  POLYPATH_CHECK(driver_, stream_wait_value32(stream, reinterpret_cast<CUdeviceptr>(word_), 1,
                                              CU_STREAM_WAIT_VALUE_GEQ));
}

void Gate::open() noexcept { __atomic_store_n(word_, 1, __ATOMIC_RELEASE); }

}  // namespace polypath::test
