#include "nccl/presence.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <utility>

#include "nccl/agreement.hpp"

namespace polypath::nccl {
namespace {

/// FNV-1a (Fowler, Noll, Vo), 64 bits.
std::uint64_t hash(std::uint64_t start, const void* bytes, std::size_t count) noexcept {
  const auto* const its = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < count; ++i) start = (start ^ its[i]) * 0x100000001B3U;
  return start;
}

struct Address {
  sockaddr_un its{};
  socklen_t bytes = 0;

  Address(const Key& key, int rank) noexcept {
    its.sun_family = AF_UNIX;
    // A name that begins with a zero is in no file system. Versions that would ask each other
    // otherwise do not find each other.
    const int length =
        std::snprintf(its.sun_path + 1, sizeof its.sun_path - 1,
                      "polypath-nccl-%u.%zu.%zu-%016llx%016llx-%d", Record::kLayout, sizeof(Record),
                      sizeof(Outcome), static_cast<unsigned long long>(key.first),
                      static_cast<unsigned long long>(key.second), rank);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                   static_cast<std::size_t>(length));
  }
  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&its);
  }
};

int open_socket() noexcept { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

}  // namespace

Key key_of(const void* bytes, std::size_t count) noexcept {
  return Key{0xCBF29CE484222325U, 0x9E3779B97F4A7C15U}.derived(bytes, count);
}

Key Key::derived(const void* bytes, std::size_t count) const noexcept {
  return {hash(first, bytes, count), hash(second, bytes, count)};
}

Presence::Presence(const Key& key, int rank) noexcept
    : key_(key), shown_(open_socket()), asking_(open_socket()) {
  const Address address(key, rank);
  if (shown_ >= 0 && asking_ >= 0 && bind(shown_, address.get(), address.bytes) == 0) return;
  if (shown_ >= 0) close(shown_);
  shown_ = -1;
}

Presence::~Presence() {
  if (shown_ >= 0) close(shown_);
  if (asking_ >= 0) close(asking_);
}

Presence& Presence::operator=(Presence&& other) noexcept {
  std::swap(key_, other.key_);
  std::swap(shown_, other.shown_);
  std::swap(asking_, other.asking_);
  return *this;
}

bool Presence::is_there(int rank) const noexcept {
  const Address address(key_, rank);
  return connect(asking_, address.get(), address.bytes) == 0;
}

int Presence::count(int ranks) const noexcept {
  int present = 0;
  for (int rank = 0; rank < ranks; ++rank) present += is_there(rank) ? 1 : 0;
  return present;
}

int Presence::lowest(int ranks) const noexcept {
  for (int rank = 0; rank < ranks; ++rank)
    if (is_there(rank)) return rank;
  return -1;
}

}  // namespace polypath::nccl
