#include "comm/socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>

namespace polypath {
namespace {

/// As poll() takes it.
int poll_limit(const Deadline& deadline) noexcept {
  return static_cast<int>(std::min<std::int64_t>(deadline.left().count(), INT_MAX));
}

}  // namespace

std::chrono::milliseconds Deadline::left() const {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

Socket::~Socket() {
  if (file_ >= 0) ::close(file_);
}

int Socket::connect(const sockaddr& address, socklen_t bytes, const Deadline& deadline) noexcept {
  if (::connect(file_, &address, bytes) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait(POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(file_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

bool Socket::wait(short events, const Deadline& deadline) const noexcept {
  while (true) {
    pollfd poll_fd{file_, events, 0};
    const int ready = ::poll(&poll_fd, 1, poll_limit(deadline));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return false;
  }
}

bool Socket::send(const void* bytes, std::size_t count, const Deadline& deadline) noexcept {
  const auto* next = static_cast<const std::byte*>(bytes);
  while (count > 0) {
    if (!wait(POLLOUT, deadline)) return false;
    const ssize_t sent = ::send(file_, next, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent <= 0) return false;
    next += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool Socket::receive(void* bytes, std::size_t count, const Deadline& deadline) noexcept {
  auto* next = static_cast<std::byte*>(bytes);
  while (count > 0) {
    if (!wait(POLLIN, deadline)) return false;
    const std::ptrdiff_t received = receive_some(next, count);
    if (received < 0) return false;
    next += received;
    count -= static_cast<std::size_t>(received);
  }
  return true;
}

std::ptrdiff_t Socket::receive_some(void* bytes, std::size_t count) noexcept {
  if (count == 0) return 0;
  const ssize_t received = ::recv(file_, bytes, count, MSG_DONTWAIT);
  if (received > 0) return received;
  return received < 0 && (errno == EINTR || errno == EAGAIN) ? 0 : -1;
}

bool wait_for_any(const std::vector<const Socket*>& sockets, const Deadline& deadline) {
  std::vector<pollfd> poll_fds;
  for (const Socket* socket : sockets) poll_fds.push_back({socket->file(), POLLIN, 0});
  while (true) {
    const int ready = ::poll(poll_fds.data(), poll_fds.size(), poll_limit(deadline));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

Socket accept_from(const Socket& listening) {
  pollfd poll_fd{listening.file(), POLLIN, 0};
  if (::poll(&poll_fd, 1, 0) != 1) return Socket();
  Socket socket(::accept4(listening.file(), nullptr, nullptr, SOCK_CLOEXEC));
  socket.send_at_once();
  return socket;
}

void Socket::send_at_once() noexcept {
  const int yes = 1;
  ::setsockopt(file_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

}  // namespace polypath
