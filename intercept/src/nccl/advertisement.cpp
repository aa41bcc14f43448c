#include "nccl/advertisement.hpp"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "gate/process.hpp"
#include "nccl/agreement.hpp"

namespace polypath::nccl {
namespace {

struct Address {
  sockaddr_un address{};
  socklen_t bytes = 0;

  Address(const CommKey& key, int rank) noexcept {
    address.sun_family = AF_UNIX;
    // A name that begins with a zero is in no file system. Versions that would ask each other
    // otherwise do not find each other.
    const int length =
        std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1,
                      "polypath-nccl-%u.%zu.%zu-%016llx%016llx-%d", Record::kLayout, sizeof(Record),
                      sizeof(Outcome), static_cast<unsigned long long>(key.first),
                      static_cast<unsigned long long>(key.second), rank);
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                   static_cast<std::size_t>(length));
  }
  [[nodiscard]] const sockaddr* get() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address);
  }
};

/// Sockets of this process that show ranks: a child that is forked closes them, or its copies would
/// go on showing ranks that have gone. 0: free; others are one more than the file.
constinit std::array<std::atomic<int>, 256> shown_files{};

[[gnu::constructor]] void prepare_children() {
  pthread_atfork(nullptr, nullptr, [] {
    for (std::atomic<int>& entry : shown_files)
      if (const int file = entry.exchange(0) - 1; file >= 0) close(file);
  });
}

/// False: there are too many.
bool remember(int file) noexcept {
  for (std::atomic<int>& entry : shown_files) {
    int free = 0;
    if (entry.compare_exchange_strong(free, file + 1)) return true;
  }
  return false;
}

/// False: it is a child's copy, and closed.
bool forget(int file) noexcept {
  for (std::atomic<int>& entry : shown_files) {
    int known = file + 1;
    if (entry.compare_exchange_strong(known, 0)) return true;
  }
  return false;
}

int open_socket() noexcept { return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

}  // namespace

CommKey key_of(const void* bytes, std::size_t count) noexcept {
  return CommKey{0xCBF29CE484222325U, 0x9E3779B97F4A7C15U}.derived(bytes, count);
}

CommKey CommKey::derived(const void* bytes, std::size_t count) const noexcept {
  return {gate::hash_of(bytes, count, first), gate::hash_of(bytes, count, second)};
}

Advertisement::Advertisement(const CommKey& key, int rank) noexcept
    : key_(key), rank_(rank), shown_(open_socket()), asking_(open_socket()) {
  const Address address(key, rank);
  // Known before it is shown: a child may be forked at any time.
  const bool is_known = shown_ >= 0 && remember(shown_);
  if (is_known && asking_ >= 0 && bind(shown_, address.get(), address.bytes) == 0) return;
  if (is_known) forget(shown_);
  if (shown_ >= 0) close(shown_);
  shown_ = -1;
}

Advertisement::~Advertisement() {
  if (shown_ >= 0 && forget(shown_)) {
    // Connected with itself no other process can connect to it, also as long as a child that was
    // forked has not yet closed its copy.
    const Address address(key_, rank_);
    static_cast<void>(connect(shown_, address.get(), address.bytes));
    close(shown_);
  }
  if (asking_ >= 0) close(asking_);
}

Advertisement& Advertisement::operator=(Advertisement&& other) noexcept {
  std::swap(key_, other.key_);
  std::swap(rank_, other.rank_);
  std::swap(shown_, other.shown_);
  std::swap(asking_, other.asking_);
  return *this;
}

bool Advertisement::is_there(int rank) const noexcept {
  const Address address(key_, rank);
  return connect(asking_, address.get(), address.bytes) == 0;
}

int Advertisement::count(int ranks) const noexcept {
  int present = 0;
  for (int rank = 0; rank < ranks; ++rank) present += is_there(rank) ? 1 : 0;
  return present;
}

int Advertisement::lowest(int ranks) const noexcept {
  for (int rank = 0; rank < ranks; ++rank)
    if (is_there(rank)) return rank;
  return -1;
}

}  // namespace polypath::nccl
