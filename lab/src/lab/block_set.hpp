// A batch of equal blocks at random places, to be measured: by the driver and by polypath, every
// byte verified.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/context.hpp"
#include "driver/resources.hpp"
#include "tune/test_buffer.hpp"

namespace polypath {

struct BlocksRequest {
  MemoryId src;
  MemoryId dst;
  std::uint64_t block_bytes = 0;
  std::size_t count = 0;
};

/// Not thread-safe; `context` must outlive it.
class BlockSet {
 public:
  /// Two buffers of `count` blocks, whose places are a random permutation on both sides, and a
  /// stream of the source's GPU (of the destination's, from host memory). Prepares the kernels.
  BlockSet(Context& context, const BlocksRequest& request);
  ~BlockSet();
  BlockSet(const BlockSet&) = delete;
  BlockSet& operator=(const BlockSet&) = delete;

  /// cuMemcpyBatchAsync, or single copies where the driver has no batches; returns without waiting.
  void issue_native();
  /// polypath_copy_batch_async.
  void issue_polypath();

  [[nodiscard]] std::span<const CUstream> streams() const noexcept { return {&stream_handle_, 1}; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return src_.size(); }
  [[nodiscard]] bool has_native_batch() const noexcept;

  /// Poisons the destination, issues, waits and compares every byte. Throws Error that names `way`.
  void verify(const char* way, const std::function<void()>& issue);
  /// Nothing: the time that the CPU takes for a batch is part of it.
  [[nodiscard]] std::function<void()> ahead() const { return {}; }
  /// Copies that keep the stream busy while the CPU begins to issue a batch. Empty on a simulated
  /// node.
  [[nodiscard]] std::function<void()> work_ahead();

 private:
  Context& context_;
  std::uint64_t block_bytes_;
  TestBuffer src_;
  TestBuffer dst_;
  CUcontext current_;
  Stream stream_;
  CUstream stream_handle_;
  std::uint64_t seed_ = 0;
  std::vector<std::size_t> source_of_;  // by block of the destination: that of the source
  std::vector<void*> dsts_;
  std::vector<const void*> srcs_;
  std::vector<std::size_t> sizes_;
  // The same as the driver takes it.
  std::vector<CUdeviceptr> dst_addresses_;
  std::vector<CUdeviceptr> src_addresses_;
  std::vector<std::unique_ptr<TestBuffer>> ahead_;
};

}  // namespace polypath
