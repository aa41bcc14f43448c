// Another process with the same driver, which does what a test tells it (peer_main.cpp).
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace polypath::sim::test {

class Peer {
 public:
  Peer();
  /// Lets it end by itself, unless it was killed.
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  /// Its own device memory, with pattern(bytes, seed) in it. One at a time.
  CUipcMemHandle allocate(int gpu, std::size_t bytes, std::uint8_t seed);
  void free();
  /// Whether all bytes of that memory are pattern(bytes, seed).
  bool holds(std::uint8_t seed);
  /// Lets it open the memory after a handle of ours in a context of `gpu`, check that it holds
  /// pattern(bytes, expected), and overwrite it with pattern(bytes, seed); what went wrong, or
  /// "ok".
  std::string exchange(const CUipcMemHandle& handle, int gpu, std::size_t bytes,
                       std::uint8_t expected, std::uint8_t seed);
  /// Ends it at once, with nothing released.
  void kill();

 private:
  std::string ask(const std::string& command);

  pid_t pid_ = 0;
  int to_ = -1;
  int from_ = -1;
};

std::string to_text(const CUipcMemHandle& handle);
CUipcMemHandle to_handle(const std::string& text);

}  // namespace polypath::sim::test
