#include "support/payload.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "tune/pattern.hpp"

namespace polypath::test {
namespace {

constexpr std::uint8_t kPoison = 0xA5;
constexpr std::uint64_t kGuard = 4096;  ///< bytes on each side of the destination
constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;

/// Reads the buffer from `offset` on.
void read_into(std::span<std::byte> contents, const CudaDriver& driver, const TestBuffer& buffer,
               std::uint64_t offset) {
  const CurrentContext current(driver, buffer.context());
  POLYPATH_CHECK(driver, memcpy_sync(reinterpret_cast<CUdeviceptr>(contents.data()),
                                     buffer.address() + offset, contents.size()));
}

/// Calls visit(offset, contents) for [from, to) of the buffer, piece by piece, until it returns a
/// failure.
template <typename Visit>
testing::AssertionResult for_each_block(const CudaDriver& driver, const TestBuffer& buffer,
                                        std::uint64_t from, std::uint64_t to, Visit visit) {
  // One block for all: fresh memory costs a page fault for each 4 KiB.
  std::vector<std::byte> memory(std::min(kBlock, to - from));
  for (std::uint64_t at = from; at < to; at += kBlock) {
    const auto block = std::span(memory).first(std::min(kBlock, to - at));
    read_into(block, driver, buffer, at);
    if (auto result = visit(at, std::span<const std::byte>(block)); !result) return result;
  }
  return testing::AssertionSuccess();
}

}  // namespace

std::vector<std::byte> read_back(const CudaDriver& driver, const TestBuffer& buffer,
                                 std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> contents(bytes);
  read_into(contents, driver, buffer, offset);
  return contents;
}

Payload::Payload(const CudaDriver& driver, const Node& node, const Shape& shape, std::uint64_t seed)
    : driver_(driver),
      shape_(shape),
      src_(driver, node, shape.src, shape.src_offset + shape.bytes),
      dst_(driver, node, shape.dst, shape.dst_offset + shape.bytes + 2 * kGuard) {
  renew(seed);
}

void Payload::renew(std::uint64_t seed) {
  seed_ = seed;
  src_.fill(seed);
  dst_.poison(kPoison);
}

Transfer Payload::transfer(CUstream stream) const {
  return {dst_.address() + kGuard + shape_.dst_offset, src_.address() + shape_.src_offset,
          shape_.bytes, stream};
}

testing::AssertionResult Payload::poison_in(std::uint64_t from, std::uint64_t to) const {
  return for_each_block(driver_, dst_, from, to, [&](std::uint64_t at, auto block) {
    // Each byte is as the one before it: a loop over bytes takes long where it is not optimised.
    if (block.front() == std::byte{kPoison} &&
        std::memcmp(block.data(), block.data() + 1, block.size() - 1) == 0)
      return testing::AssertionSuccess();
    const auto wrong =
        std::ranges::find_if(block, [](std::byte byte) { return byte != std::byte{kPoison}; });
    return testing::AssertionFailure()
           << "byte " << at + static_cast<std::uint64_t>(wrong - block.begin())
           << " of the destination buffer was written; the transfer owns ["
           << shape_.dst_offset + kGuard << ", +" << shape_.bytes << ")";
  });
}

testing::AssertionResult Payload::arrived() const {
  const std::uint64_t start = kGuard + shape_.dst_offset;
  const std::uint64_t end = start + shape_.bytes;
  auto contents = for_each_block(driver_, dst_, start, end, [&](std::uint64_t at, auto block) {
    const auto wrong = first_difference(block, seed_, shape_.src_offset + (at - start));
    if (!wrong) return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << to_string(shape_.src) << " to " << to_string(shape_.dst) << ": byte "
           << at - start + *wrong << " of " << shape_.bytes << " is wrong";
  });
  if (!contents) return contents;
  if (auto before = poison_in(0, start); !before) return before;
  return poison_in(end, dst_.size());
}

testing::AssertionResult Payload::untouched() const { return poison_in(0, dst_.size()); }

}  // namespace polypath::test
