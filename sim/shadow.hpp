// The bytes of one allocation of device memory, where the simulated devices read and write them: a
// mapping of its own, apart from the public no-access address. Pages come into being when touched.
// Memory never written holds a pattern instead of zeros, so that a test which forgets to write fails.
#pragma once

#include <cstddef>

namespace polypath::sim {

class Shadow {
 public:
  static constexpr std::byte kPoison{0xC3};

  virtual ~Shadow() = default;
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  /// The bytes from `offset` on, ready to be read.
  const std::byte* read(std::size_t offset, std::size_t bytes);
  /// The bytes from `offset` on; the caller overwrites all `bytes` of them.
  std::byte* overwrite(std::size_t offset, std::size_t bytes);

 protected:
  explicit Shadow(std::size_t bytes) : bytes_(bytes) {}

  static constexpr std::size_t kGranule = std::size_t{2} << 20;
  static std::size_t granules(std::size_t bytes) { return (bytes + kGranule - 1) / kGranule; }

  /// True when the granule holds its pattern, or written bytes.
  virtual bool is_touched(std::size_t granule) = 0;
  /// Makes a granule touched that may not be: by its pattern, unless all of it is about to be
  /// overwritten.
  virtual void touch(std::size_t granule, bool is_overwritten) = 0;
  void write_pattern(std::size_t granule);

  std::byte* base_ = nullptr;  ///< set by whoever maps the bytes

 private:
  void prepare(std::size_t first, std::size_t last, bool is_overwritten);

  std::size_t bytes_;
};

}  // namespace polypath::sim
