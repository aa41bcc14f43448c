// Fills of one dimension.
#include "call.hpp"

namespace {

using namespace polypath::sim;

/// `count` elements as wide as `value`.
template <typename Value>
CUresult fill(CUdeviceptr dst, Value value, std::size_t count, CUstream stream,
              bool is_synchronous) {
  return call([&](Driver& driver) {
    driver.copies().fill(dst, {value, sizeof value}, count, stream, is_synchronous);
  });
}

}  // namespace

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream) {
  return fill(dst, value, count, stream, false);
}

CUresult cuMemsetD8Async_ptsz(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream) {
  return fill(dst, value, count, per_thread(stream), false);
}

CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t count, CUstream stream) {
  return fill(dst, value, count, stream, false);
}

CUresult cuMemsetD16Async_ptsz(CUdeviceptr dst, unsigned short value, size_t count,
                               CUstream stream) {
  return fill(dst, value, count, per_thread(stream), false);
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream) {
  return fill(dst, value, count, stream, false);
}

CUresult cuMemsetD32Async_ptsz(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream) {
  return fill(dst, value, count, per_thread(stream), false);
}

// Without a stream: on the default stream, and waited for where it is host memory.

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t count) {
  return fill(dst, value, count, CU_STREAM_LEGACY, true);
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr dst, unsigned char value, size_t count) {
  return fill(dst, value, count, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t count) {
  return fill(dst, value, count, CU_STREAM_LEGACY, true);
}

CUresult cuMemsetD16_v2_ptds(CUdeviceptr dst, unsigned short value, size_t count) {
  return fill(dst, value, count, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int value, size_t count) {
  return fill(dst, value, count, CU_STREAM_LEGACY, true);
}

CUresult cuMemsetD32_v2_ptds(CUdeviceptr dst, unsigned int value, size_t count) {
  return fill(dst, value, count, CU_STREAM_PER_THREAD, true);
}
