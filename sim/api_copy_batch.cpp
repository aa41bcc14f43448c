// Batches of copies: none is issued unless all are possible. Among each other they are in the order of the
// stream, which is one of the orders that CUDA allows.
#include <cstdint>
#include <span>
#include <vector>

#include "call.hpp"

using namespace polypath::sim;

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
    const CUmemcpyAttributes& one = batch.attributes[k];
    require(one.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
                one.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ||
                one.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
            CUDA_ERROR_INVALID_VALUE);
    require((one.flags & ~unsigned{CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE}) == 0,
            CUDA_ERROR_INVALID_VALUE);
    if (k > 0)
      require(batch.firsts[k] > batch.firsts[k - 1] && batch.firsts[k] < batch.count,
              CUDA_ERROR_INVALID_VALUE);
    is_during_call =
        is_during_call || one.srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  }
  return is_during_call;
}

/// `failed` becomes the index of the copy that cannot be, or SIZE_MAX.
void issue(Driver& driver, const Batch& batch, CUstream handle, std::size_t& failed) {
  failed = SIZE_MAX;
  driver.current_context();
  require(
      batch.dsts != nullptr && batch.srcs != nullptr && batch.sizes != nullptr && batch.count > 0,
      CUDA_ERROR_INVALID_VALUE);
  const bool is_during_call = read_attributes(batch);
  driver.wait_for_room(handle, batch.count);
  Stream& stream = driver.stream(handle);
  if (stream.capture.is_active()) fail_not_supported("cuMemcpyBatchAsync in a capture");
  std::vector<PreparedCopy> prepared;
  for (failed = 0; failed < batch.count; ++failed)
    prepared.push_back(
        driver.prepare_copy(driver.contexts.get(stream.context),
                            {{batch.dsts[failed]}, {batch.srcs[failed]}, batch.sizes[failed]}));
  failed = SIZE_MAX;
  OperationPtr last;
  bool is_waited_for = is_during_call;
  for (PreparedCopy& copy : prepared) {
    driver.count(copy);
    is_waited_for = is_waited_for || copy.is_pageable;
    last = driver.enqueue(stream, std::move(copy.operation));
  }
  driver.spend(driver.node.costs.copy_issue_us);
  if (is_waited_for) driver.wait(last);
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

/// What stream 0 means to the forms of the per-thread default stream.
CUstream per_thread(CUstream stream) { return stream == nullptr ? CU_STREAM_PER_THREAD : stream; }

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
