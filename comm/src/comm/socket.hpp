// Sockets that wait no longer than until a deadline.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace polypath {

class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds limit)
      : end_(std::chrono::steady_clock::now() + limit) {}
  /// Never negative.
  [[nodiscard]] std::chrono::milliseconds left() const;

 private:
  std::chrono::steady_clock::time_point end_;
};

/// Owns a connected or listening socket. After a call that returned false it is of no more use.
class Socket {
 public:
  explicit Socket(int file = -1) noexcept : file_(file) {}
  ~Socket();
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  [[nodiscard]] int file() const noexcept { return file_; }
  explicit operator bool() const noexcept { return file_ >= 0; }

  /// For a socket that does not block: 0, or why not (errno).
  [[nodiscard]] int connect(const sockaddr& address, socklen_t bytes,
                            const Deadline& deadline) noexcept;
  /// Small messages do not wait for others.
  void send_at_once() noexcept;
  /// All bytes; false when the other side is gone, or the deadline is past.
  bool send(const void* bytes, std::size_t count, const Deadline& deadline) noexcept;
  bool receive(void* bytes, std::size_t count, const Deadline& deadline) noexcept;
  /// What is there now, at most `count` bytes; -1 when the other side is gone.
  std::ptrdiff_t receive_some(void* bytes, std::size_t count) noexcept;

 private:
  [[nodiscard]] bool wait(short events, const Deadline& deadline) const noexcept;
  int file_;
};

/// A connection that has not said all of its `Greeting` yet.
template <typename Greeting>
struct Newcomer {
  Socket socket;
  Greeting greeting{};
  std::size_t received = 0;

  [[nodiscard]] bool complete() const noexcept {
    return static_cast<bool>(socket) && received == sizeof greeting;
  }
};

/// Waits until one of `sockets`, the first of which listens, has something; false past the
/// deadline.
bool wait_for_any(const std::vector<const Socket*>& sockets, const Deadline& deadline);
/// The next connection of a listening socket; none when there is none now.
Socket accept_from(const Socket& listening);

/// Takes in new connections, and what they say; one that goes has no socket then.
template <typename Greeting>
bool await_any(const Socket& listening, std::vector<Newcomer<Greeting>>& newcomers,
               const Deadline& deadline) {
  std::vector<const Socket*> sockets{&listening};
  for (const auto& newcomer : newcomers) sockets.push_back(&newcomer.socket);
  if (!wait_for_any(sockets, deadline)) return false;
  if (Socket socket = accept_from(listening)) newcomers.push_back({std::move(socket), {}, 0});
  for (auto& newcomer : newcomers) {
    auto* const bytes = reinterpret_cast<std::byte*>(&newcomer.greeting);
    const std::ptrdiff_t count = newcomer.socket.receive_some(
        bytes + newcomer.received, sizeof newcomer.greeting - newcomer.received);
    if (count < 0) {
      newcomer.socket = Socket();
    } else {
      newcomer.received += static_cast<std::size_t>(count);
    }
  }
  return true;
}

}  // namespace polypath
