// What the cases of the suite have on each rank: memory that is compared to the last byte, a
// stream, and failures as exceptions, so that they run under any launcher.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "polypath/uniconn.hpp"

namespace polypath::test {

namespace uc = polypath::uniconn;

using Bytes = std::vector<std::byte>;

/// Throws with the place, and what `detail` says.
inline void expect(bool holds, const char* what, const std::string& detail, const char* file,
                   int line) {
  if (holds) return;
  std::ostringstream text;
  text << file << ":" << line << ": " << what << (detail.empty() ? "" : ": ") << detail;
  throw std::runtime_error(text.str());
}
#define SUITE_EXPECT(condition, detail) \
  ::polypath::test::expect((condition), #condition, (detail), __FILE__, __LINE__)

/// What `call` throws, which has to be an error of this status.
template <typename Call>
std::string refusal(polypath_status status, const char* what, const Call& call) {
  try {
    call();
  } catch (const polypath::error& error) {
    SUITE_EXPECT(error.status() == status, std::string(what) + ": " + error.what());
    return error.what();
  }
  throw std::runtime_error(std::string(what) + " is not refused");
}

/// Bytes `8 * word` to `8 * word + 7` of what `seed` names; nothing else has the same row of bytes.
inline std::uint64_t word_of(std::uint64_t seed, std::size_t word) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15U + word * 0xbf58476d1ce4e5b9U + 0x1234567U;
  x ^= x >> 31U;
  x *= 0x94d049bb133111ebU;
  return x ^ x >> 29U;
}
inline Bytes bytes_of(std::uint64_t seed, std::size_t count) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  Bytes bytes(count);
  for (std::size_t at = 0; at < count; at += kWord) {
    const std::uint64_t word = word_of(seed, at / kWord);
    std::memcpy(&bytes[at], &word, std::min(kWord, count - at));
  }
  return bytes;
}

/// The GPU of this rank, by the driver that UNICONN uses.
class Gpu {
 public:
  Gpu() : engine_(uc::detail::engine()), cuda(engine_.get()) {
    find(stream_create_, "cuStreamCreate");
    find(stream_destroy_, "cuStreamDestroy_v2");
    cuda.check(stream_create_(&stream, 1), "cuStreamCreate");
  }
  ~Gpu() { stream_destroy_(stream); }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  void write(void* to, const Bytes& bytes) const {
    cuda.check(
        cuda.copy(uc::detail::device(to), uc::detail::device(bytes.data()), bytes.size(), stream),
        "write");
    cuda.check(cuda.synchronize(stream), "write");
  }
  [[nodiscard]] Bytes read(const void* from, std::size_t count) const {
    Bytes bytes(count, std::byte{0x5A});
    cuda.check(cuda.copy(uc::detail::device(bytes.data()), uc::detail::device(from), count, stream),
               "read");
    cuda.check(cuda.synchronize(stream), "read");
    return bytes;
  }
  void fill(void* to, unsigned char value, std::size_t count) const {
    cuda.check(cuda.set(uc::detail::device(to), value, count, stream), "fill");
  }

 private:
  template <typename Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(polypath_driver_function(engine_.get(), name));
  }
  std::shared_ptr<polypath_context> engine_;
  int (*stream_create_)(uc::Stream*, unsigned) = nullptr;
  int (*stream_destroy_)(uc::Stream) = nullptr;

 public:
  uc::detail::Cuda cuda;
  uc::Stream stream = nullptr;
};

/// UNICONN memory, poisoned, with guards on both sides. expect() compares all of it.
template <typename B>
class Buffer {
 public:
  Buffer(const Gpu& gpu, std::size_t bytes)
      : gpu_(gpu),
        all_(uc::Memory<B>::template Alloc<std::byte>(bytes + 2 * kGuard)),
        image_(bytes + 2 * kGuard, kPoison) {
    gpu_.write(all_, image_);
  }
  ~Buffer() {
    try {
      uc::Memory<B>::Free(all_);
    } catch (const std::exception&) {  // a case failed, and its ranks with it
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  template <typename T = std::byte>
  [[nodiscard]] T* get(std::size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(all_ + kGuard + offset_bytes);
  }
  /// Makes the bytes at an offset these, in memory.
  void put(std::size_t offset, const Bytes& bytes) {
    note(offset, bytes);
    gpu_.write(all_ + kGuard + offset, bytes);
  }
  /// The expected contents.
  void note(std::size_t offset, const Bytes& bytes) {
    if (!bytes.empty()) std::memcpy(image_.data() + kGuard + offset, bytes.data(), bytes.size());
  }
  void poison() {
    image_.assign(image_.size(), kPoison);
    gpu_.write(all_, image_);
  }
  void expect_image(const std::string& what) const {
    const Bytes actual = gpu_.read(all_, image_.size());
    if (std::memcmp(actual.data(), image_.data(), actual.size()) == 0) return;
    for (std::size_t at = 0; at < actual.size(); ++at)
      SUITE_EXPECT(actual[at] == image_[at],
                   what + ": byte " +
                       std::to_string(static_cast<long>(at) - static_cast<long>(kGuard)) + " is " +
                       std::to_string(static_cast<int>(actual[at])) + ", not " +
                       std::to_string(static_cast<int>(image_[at])));
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::byte kPoison{0xA7};
  const Gpu& gpu_;
  std::byte* all_;
  Bytes image_;
};

/// One rank of a case. `seed` is the same on all.
template <typename B>
struct SuiteRank {
  uc::Environment<B>& env;
  uc::Communicator<B>& comm;
  const Gpu& gpu;
  std::uint64_t seed = 1;
  /// For one-sided backends: some posts wait for their acknowledge, as for two-sided ones.
  bool posts_may_wait = false;

  [[nodiscard]] int rank() const { return comm.GlobalRank(); }
  [[nodiscard]] int size() const { return comm.GlobalSize(); }
  [[nodiscard]] bool is_one_sided() const {
    const std::string name = env.BackendName();
    return name == "polypath" || name == "gpushmem";
  }
  /// What `source` contributes to the `round`-th thing of the case.
  [[nodiscard]] Bytes content(int source, std::uint64_t round, std::size_t count) const {
    return bytes_of(seed * 1'000'003 + round * 1009 + static_cast<std::uint64_t>(source), count);
  }
};

}  // namespace polypath::test
