// One spread, to be measured: as a native copy for each GPU and by polypath, every byte verified.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/context.hpp"
#include "driver/resources.hpp"
#include "tune/test_buffer.hpp"

namespace polypath {

struct SpreadRequest {
  MemoryId src;
  std::vector<int> gpus;
  std::uint64_t bytes = 0;   ///< that each GPU receives
  bool is_pageable = false;  ///< the source: host memory that is not pinned
};

/// Not thread-safe; `context` must outlive it.
class SpreadSet {
 public:
  /// A source with random contents, and a buffer and a stream on each GPU. Prepares the spread.
  SpreadSet(Context& context, const SpreadRequest& request);

  /// cuMemcpyAsync for each GPU on its stream; returns without waiting.
  void issue_native();
  /// polypath_spread_async.
  void issue_polypath();

  [[nodiscard]] std::span<const CUstream> streams() const noexcept { return handles_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return request_.bytes; }
  /// Poisons the destinations, issues, waits and compares every byte. Throws Error that names
  /// `way`.
  void verify(const char* way, const std::function<void()>& issue);
  /// Copies that keep the first stream busy while the CPU issues. Nothing on a simulated node, and
  /// for pageable memory, whose copies the CPU makes.
  [[nodiscard]] std::function<void()> ahead();

 private:
  struct End {
    End(Context& context, int gpu, std::uint64_t bytes);
    CUcontext current;
    TestBuffer buffer;
    Stream stream;
  };

  Context& context_;
  SpreadRequest request_;
  std::uint64_t seed_;
  TestBuffer src_;
  std::deque<End> ends_;
  std::vector<CUstream> handles_;
  std::vector<void*> addresses_;
  std::vector<void*> streams_;
  std::vector<std::unique_ptr<TestBuffer>> ahead_;
};

}  // namespace polypath
