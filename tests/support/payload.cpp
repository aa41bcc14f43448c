#include "support/payload.hpp"

#include <algorithm>
#include <cstddef>

#include "tune/pattern.hpp"

namespace polypath::test {
namespace {

constexpr std::uint8_t kPoison = 0xA5;
constexpr std::uint64_t kGuard = 4096;  ///< bytes on each side of the destination
constexpr std::uint64_t kBlock = std::uint64_t{16} << 20;

}  // namespace

std::vector<std::byte> read_back(const CudaDriver& driver, const TestBuffer& buffer,
                                 std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> contents(bytes);
  const CurrentContext current(driver, buffer.context());
  POLYPATH_CHECK(driver, memcpy_sync(reinterpret_cast<CUdeviceptr>(contents.data()),
                                     buffer.address() + offset, bytes));
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
  for (std::uint64_t at = from; at < to; at += kBlock) {
    const auto block = read_back(driver_, dst_, at, std::min(kBlock, to - at));
    const auto wrong =
        std::ranges::find_if(block, [](std::byte byte) { return byte != std::byte{kPoison}; });
    if (wrong != block.end())
      return testing::AssertionFailure()
             << "byte " << at + static_cast<std::uint64_t>(wrong - block.begin())
             << " of the destination buffer was written; the transfer owns ["
             << shape_.dst_offset + kGuard << ", +" << shape_.bytes << ")";
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult Payload::arrived() const {
  const std::uint64_t start = kGuard + shape_.dst_offset;
  for (std::uint64_t at = 0; at < shape_.bytes; at += kBlock) {
    const auto block = read_back(driver_, dst_, start + at, std::min(kBlock, shape_.bytes - at));
    if (const auto wrong = first_difference(block, seed_, shape_.src_offset + at))
      return testing::AssertionFailure()
             << to_string(shape_.src) << " to " << to_string(shape_.dst) << ": byte " << at + *wrong
             << " of " << shape_.bytes << " is wrong";
  }
  if (auto before = poison_in(0, start); !before) return before;
  return poison_in(start + shape_.bytes, dst_.size());
}

testing::AssertionResult Payload::untouched() const { return poison_in(0, dst_.size()); }

}  // namespace polypath::test
