// As many bytes as a warp, or a thread of its own, has in its registers: one word a thread, as wide
// as both addresses and the number of bytes allow. No loops, and source and destination apart, so
// that a caller can load the source before it knows the destination.
#pragma once

#include "polypath/device/platform.cuh"

namespace polypath::uniconn::detail {

class register_copy {
 public:
  /// `to` may be another address that is equal modulo 16.
  POLYPATH_DEVICE register_copy(const void* from, const void* to, std::size_t bytes)
      : from_(reinterpret_cast<std::uint64_t>(from)) {
    const std::uint64_t all = from_ | reinterpret_cast<std::uint64_t>(to) | bytes;
    log_ = all % 16 == 0 ? 4 : all % 8 == 0 ? 3 : all % 4 == 0 ? 2 : 0;
    words_ = bytes >> log_;
  }
  [[nodiscard]] POLYPATH_DEVICE bool are_of(unsigned threads) const { return words_ <= threads; }

  /// Thread `rank` of those.
  POLYPATH_DEVICE void load(unsigned rank) {
    if (rank >= words_) return;
    const std::uint64_t at = from_ + (std::uint64_t{rank} << log_);
    if (log_ == 4)
      word_ = device::load_streaming(reinterpret_cast<const Word*>(at));
    else if (log_ == 3)
      word_.low = device::load_streaming(reinterpret_cast<const std::uint64_t*>(at));
    else if (log_ == 2)
      word_.low = device::load_streaming(reinterpret_cast<const std::uint32_t*>(at));
    else
      word_.low = device::load_streaming(reinterpret_cast<const std::uint8_t*>(at));
  }
  POLYPATH_DEVICE void store(unsigned char* to, unsigned rank) const {
    if (rank >= words_) return;
    unsigned char* const at = to + (std::uint64_t{rank} << log_);
    if (log_ == 4)
      device::store_streaming(reinterpret_cast<Word*>(at), word_);
    else if (log_ == 3)
      device::store_streaming(reinterpret_cast<std::uint64_t*>(at), word_.low);
    else if (log_ == 2)
      device::store_streaming(reinterpret_cast<std::uint32_t*>(at),
                              static_cast<std::uint32_t>(word_.low));
    else
      device::store_streaming(at, static_cast<std::uint8_t>(word_.low));
  }

 private:
  struct alignas(16) Word {
    std::uint64_t low, high;
  };

  std::uint64_t from_;
  std::uint64_t words_;
  unsigned log_;  ///< of the bytes of a word
  Word word_{};
};

}  // namespace polypath::uniconn::detail
