// Copies and fills. All forms are one copy: addresses say where memory lies.
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "call.hpp"

using namespace polypath::sim;

namespace {

CUresult copy(std::uintptr_t dst, std::uintptr_t src, std::size_t bytes, CUstream stream,
              bool is_synchronous) {
  return call(
      [&](Driver& driver) { driver.copies().copy({{dst}, {src}, bytes}, stream, is_synchronous); });
}

CUresult copy_peer(std::uintptr_t dst, CUcontext dst_context, std::uintptr_t src,
                   CUcontext src_context, std::size_t bytes, CUstream stream, bool is_synchronous) {
  return call([&](Driver& driver) {
    driver.contexts().get(dst_context, CUDA_ERROR_INVALID_CONTEXT);
    driver.contexts().get(src_context, CUDA_ERROR_INVALID_CONTEXT);
    driver.copies().copy({{dst, 0, 0, dst_context}, {src, 0, 0, src_context}, bytes}, stream,
                         is_synchronous);
  });
}

std::uintptr_t address(const void* host) { return std::bit_cast<std::uintptr_t>(host); }

}  // namespace

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(dst, src, bytes, stream, false);
}

CUresult cuMemcpyAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(dst, src, bytes, per_thread(stream), false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(dst, src, bytes, stream, false);
}

CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                   CUstream stream) {
  return copy(dst, src, bytes, per_thread(stream), false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t bytes, CUstream stream) {
  return copy(dst, address(src), bytes, stream, false);
}

CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr dst, const void* src, size_t bytes,
                                   CUstream stream) {
  return copy(dst, address(src), bytes, per_thread(stream), false);
}

CUresult cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(address(dst), src, bytes, stream, false);
}

CUresult cuMemcpyDtoHAsync_v2_ptsz(void* dst, CUdeviceptr src, size_t bytes, CUstream stream) {
  return copy(address(dst), src, bytes, per_thread(stream), false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                           CUcontext src_context, size_t bytes, CUstream stream) {
  return copy_peer(dst, dst_context, src, src_context, bytes, stream, false);
}

CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                                CUcontext src_context, size_t bytes, CUstream stream) {
  return copy_peer(dst, dst_context, src, src_context, bytes, per_thread(stream), false);
}

// Without a stream: on the default stream, and waited for where host memory is on a side.

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy(dst, src, bytes, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpy_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy(dst, src, bytes, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void* src, size_t bytes) {
  return copy(dst, address(src), bytes, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr dst, const void* src, size_t bytes) {
  return copy(dst, address(src), bytes, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyDtoH_v2(void* dst, CUdeviceptr src, size_t bytes) {
  return copy(address(dst), src, bytes, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyDtoH_v2_ptds(void* dst, CUdeviceptr src, size_t bytes) {
  return copy(address(dst), src, bytes, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy(dst, src, bytes, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr dst, CUdeviceptr src, size_t bytes) {
  return copy(dst, src, bytes, CU_STREAM_PER_THREAD, true);
}

CUresult cuMemcpyPeer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                      CUcontext src_context, size_t bytes) {
  return copy_peer(dst, dst_context, src, src_context, bytes, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src,
                           CUcontext src_context, size_t bytes) {
  return copy_peer(dst, dst_context, src, src_context, bytes, CU_STREAM_PER_THREAD, true);
}

// Batches of copies: none is issued unless all are possible. Among each other they are in the order
// of the stream, which is one of the orders that CUDA allows.

namespace {

struct Batch {
  CUdeviceptr* dsts;
  CUdeviceptr* srcs;
  std::size_t* sizes;
  std::size_t count;
  CUmemcpyAttributes* attributes;
  std::size_t* firsts;
  std::size_t attribute_count;
};

/// Whether the accesses to any of the sources have to end before the call does.
bool read_attributes(const Batch& batch) {
  require(batch.attributes != nullptr && batch.firsts != nullptr && batch.attribute_count > 0 &&
              batch.attribute_count <= batch.count && batch.firsts[0] == 0,
          CUDA_ERROR_INVALID_VALUE);
  bool is_during_call = false;
  for (std::size_t k = 0; k < batch.attribute_count; ++k) {
    const CUmemcpyAttributes& attribute = batch.attributes[k];
    require(attribute.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
                attribute.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
                attribute.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
            CUDA_ERROR_INVALID_VALUE);
    require((attribute.flags & ~unsigned{CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}) == 0,
            CUDA_ERROR_INVALID_VALUE);
    if (k > 0)
      require(batch.firsts[k] > batch.firsts[k - 1] && batch.firsts[k] < batch.count,
              CUDA_ERROR_INVALID_VALUE);
    is_during_call =
        is_during_call || attribute.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  }
  return is_during_call;
}

/// `failed` becomes the index of the copy that cannot be, or SIZE_MAX.
void issue(Driver& driver, const Batch& batch, CUstream handle, std::size_t& failed) {
  failed = SIZE_MAX;
  driver.contexts().current();
  require(
      batch.dsts != nullptr && batch.srcs != nullptr && batch.sizes != nullptr && batch.count > 0,
      CUDA_ERROR_INVALID_VALUE);
  const bool is_during_call = read_attributes(batch);
  std::vector<CopyRequest> requests;
  for (std::size_t i = 0; i < batch.count; ++i)
    requests.push_back({{batch.dsts[i]}, {batch.srcs[i]}, batch.sizes[i]});
  driver.copies().copy_batch(requests, handle, is_during_call, failed);
}

CUresult issue(const Batch& batch, std::size_t* fail_index, CUstream stream) {
  return call([&](Driver& driver) {
    std::size_t& failed = out(fail_index);
    require(stream != nullptr && stream != CU_STREAM_LEGACY, CUDA_ERROR_INVALID_VALUE);
    issue(driver, batch, stream, failed);
  });
}

CUresult issue(const Batch& batch, CUstream stream) {
  std::size_t ignored = 0;
  return issue(batch, &ignored, stream);
}

/// One copy with attributes, on any stream.
CUresult issue_one(CUdeviceptr dst, CUdeviceptr src, std::size_t bytes,
                   CUmemcpyAttributes* attributes, CUstream stream) {
  return call([&](Driver& driver) {
    std::size_t first = 0;
    std::size_t failed = 0;
    issue(driver, {&dst, &src, &bytes, 1, attributes, &first, 1}, stream, failed);
  });
}

}  // namespace

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* firsts, size_t attribute_count,
                            size_t* fail_index, CUstream stream) {
  return issue({dsts, srcs, sizes, count, attributes, firsts, attribute_count}, fail_index, stream);
}

CUresult cuMemcpyBatchAsync_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                                 CUmemcpyAttributes* attributes, size_t* firsts,
                                 size_t attribute_count, size_t* fail_index, CUstream stream) {
  return issue({dsts, srcs, sizes, count, attributes, firsts, attribute_count}, fail_index,
               per_thread(stream));
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attributes, size_t* firsts,
                               size_t attribute_count, CUstream stream) {
  return issue({dsts, srcs, sizes, count, attributes, firsts, attribute_count}, stream);
}

CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes,
                                    size_t count, CUmemcpyAttributes* attributes, size_t* firsts,
                                    size_t attribute_count, CUstream stream) {
  return issue({dsts, srcs, sizes, count, attributes, firsts, attribute_count}, per_thread(stream));
}

CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                     CUmemcpyAttributes* attributes, CUstream stream) {
  return issue_one(dst, src, bytes, attributes, stream);
}

CUresult cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                                          CUmemcpyAttributes* attributes, CUstream stream) {
  return issue_one(dst, src, bytes, attributes, per_thread(stream));
}
