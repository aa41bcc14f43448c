#include "tune/checked_pair.hpp"

#include <fmt/format.h>

#include <random>

#include "base/error.hpp"

namespace polypath {

CheckedPair::CheckedPair(const CudaDriver& driver, const Node& node, MemoryId src, MemoryId dst,
                         std::uint64_t bytes)
    : src_(driver, node, src, bytes), dst_(driver, node, dst, bytes) {
  std::random_device seeds;
  seed_ = std::uint64_t{seeds()} << 32 | seeds();
  src_.fill(seed_);
}

void CheckedPair::verify(const char* way) const {
  if (const auto offset = dst_.first_difference(seed_))
    throw Error(fmt::format("the copy by {} is wrong at byte {} of {}", way, *offset, dst_.size()));
}

}  // namespace polypath
