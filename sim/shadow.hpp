// The bytes of one allocation of device memory, where the simulated devices read and write them: a
// private mapping, apart from the public no-access address. Pages come into being when touched.
// Memory never written holds a pattern instead of zeros, so that a test which forgets to write fails.
#pragma once

#include <cstddef>
#include <vector>

namespace polypath::sim {

class Shadow {
 public:
  static constexpr std::byte kPoison{0xC3};

  /// Throws std::bad_alloc when the address space is used up.
  explicit Shadow(std::size_t bytes);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  /// The bytes from `offset` on, ready to be read.
  const std::byte* read(std::size_t offset, std::size_t bytes);
  /// The bytes from `offset` on; the caller overwrites all `bytes` of them.
  std::byte* overwrite(std::size_t offset, std::size_t bytes);

 private:
  static constexpr std::size_t kGranule = std::size_t{2} << 20;

  void poison(std::size_t first, std::size_t last, std::size_t keep_from, std::size_t keep_to);

  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<bool> touched_;  // one a granule: holds its pattern or written bytes
};

}  // namespace polypath::sim
