// A transfer that verifies itself: random contents, a poisoned destination, guard bytes on both
// sides.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "core/context.hpp"
#include "tune/test_buffer.hpp"

namespace polypath::test {

/// Contents of a range of a buffer: bytes [offset, offset + bytes) of it.
std::vector<std::byte> read_back(const CudaDriver& driver, const TestBuffer& buffer,
                                 std::uint64_t offset, std::uint64_t bytes);

class Payload {
 public:
  struct Shape {
    MemoryId src;
    MemoryId dst;
    std::uint64_t bytes = 0;
    std::uint64_t src_offset = 0;  ///< odd offsets are allowed
    std::uint64_t dst_offset = 0;
  };

  /// Both buffers, the source filled with the pattern `seed`, the destination poisoned.
  Payload(const CudaDriver& driver, const Node& node, const Shape& shape, std::uint64_t seed);

  [[nodiscard]] Transfer transfer(CUstream stream) const;
  [[nodiscard]] Request request() const { return {shape_.src, shape_.dst, shape_.bytes}; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }

  /// Other contents and a poisoned destination, for the next transfer.
  void renew(std::uint64_t seed);
  /// Every byte of the source is at its place, every byte around it is still poison. To be asked
  /// when the transfer has completed.
  [[nodiscard]] testing::AssertionResult arrived() const;
  /// Nothing at all has been written yet.
  [[nodiscard]] testing::AssertionResult untouched() const;

 private:
  [[nodiscard]] testing::AssertionResult poison_in(std::uint64_t from, std::uint64_t to) const;

  const CudaDriver& driver_;
  Shape shape_;
  std::uint64_t seed_ = 0;
  TestBuffer src_;
  TestBuffer dst_;
};

}  // namespace polypath::test
