#include "comm/socket_bootstrap.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "comm/rank_error.hpp"
#include "comm/socket.hpp"

namespace polypath {
namespace {

using std::chrono::milliseconds;

/// Between two tries to reach a rank 0 that does not listen yet.
constexpr milliseconds kRetry{20};

/// A rank's first message. Other connections are refused: any program can connect.
struct Greeting {
  static constexpr std::uint64_t kMagic = 0x50502d4a4f494e31;  // "PP-JOIN1"
  std::uint64_t magic = kMagic;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::array<char, 128> job{};
};

Greeting greeting_of(const Rendezvous& rendezvous) {
  Greeting greeting;
  greeting.rank = rendezvous.rank;
  greeting.size = rendezvous.size;
  std::memcpy(greeting.job.data(), rendezvous.job.data(),
              std::min(rendezvous.job.size(), greeting.job.size()));
  return greeting;
}

std::string place(const Rendezvous& rendezvous) {
  return fmt::format("{} port {}", rendezvous.address, rendezvous.port);
}

struct Addresses {
  explicit Addresses(const Rendezvous& rendezvous) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    const int failed = ::getaddrinfo(rendezvous.address.c_str(),
                                     std::to_string(rendezvous.port).c_str(), &hints, &first);
    if (failed != 0)
      throw CommunicatorError(
          fmt::format("{} cannot be found: {}", rendezvous.address, ::gai_strerror(failed)));
  }
  ~Addresses() { ::freeaddrinfo(first); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  addrinfo* first = nullptr;
};

Socket listen_at(const Rendezvous& rendezvous) {
  if (rendezvous.listening >= 0) return Socket(rendezvous.listening);
  const Addresses addresses(rendezvous);
  int error = 0;
  for (const addrinfo* address = addresses.first; address != nullptr; address = address->ai_next) {
    Socket socket(
        ::socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC, address->ai_protocol));
    const int yes = 1;
    ::setsockopt(socket.file(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(socket.file(), address->ai_addr, address->ai_addrlen) == 0 &&
        ::listen(socket.file(), rendezvous.size) == 0)
      return socket;
    error = errno;
  }
  throw CommunicatorError(
      fmt::format("rank 0 cannot listen at {}: {}; POLYPATH_COMM_PORT names "
                  "another port",
                  place(rendezvous), std::generic_category().message(error)));
}

Socket connect_to(const Rendezvous& rendezvous, const Deadline& deadline) {
  const Addresses addresses(rendezvous);
  int error = 0;
  while (true) {
    for (const addrinfo* address = addresses.first; address != nullptr;
         address = address->ai_next) {
      Socket socket(::socket(address->ai_family,
                             address->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                             address->ai_protocol));
      error = socket.connect(*address->ai_addr, address->ai_addrlen, deadline);
      if (error == 0) return socket;
    }
    if (deadline.left().count() <= 0)
      throw CommunicatorError(fmt::format("rank 0 did not come to {}: {}", place(rendezvous),
                                          std::generic_category().message(error)));
    std::this_thread::sleep_for(std::min(kRetry, deadline.left()));
  }
}

/// Rank 0's connections to all others, by rank; or another rank's to rank 0.
class Connections {
 public:
  Connections(const Rendezvous& rendezvous, milliseconds limit)
      : rank_(rendezvous.rank), size_(static_cast<std::size_t>(rendezvous.size)), limit_(limit) {
    const Deadline deadline(limit);
    if (size_ == 1) return;
    if (rank_ == 0) {
      accept_all(rendezvous, deadline);
    } else {
      to_root_ = connect_to(rendezvous, deadline);
      to_root_.send_at_once();
      const Greeting greeting = greeting_of(rendezvous);
      if (!to_root_.send(&greeting, sizeof greeting, deadline)) throw lost_root("the greeting");
      receive_verdict("the others");
    }
  }

  void exchange(std::span<const std::byte> local, std::span<std::byte> all) {
    if (all.size() != size_ * local.size())
      throw InvalidArgument(fmt::format("exchange: all has {} bytes, not {} times {}", all.size(),
                                        size_, local.size()));
    if (rank_ == 0) {
      gather(local, all);
    } else {
      const std::uint64_t bytes = local.size();
      const Deadline deadline(limit_);
      if (!to_root_.send(&bytes, sizeof bytes, deadline) ||
          !to_root_.send(local.data(), local.size(), deadline))
        throw lost_root("an exchange");
      receive_verdict("an exchange");
      if (!to_root_.receive(all.data(), all.size(), Deadline(limit_)))
        throw lost_root("an exchange");
    }
  }

 private:
  static CommunicatorError lost_root(const char* in) {
    return CommunicatorError(fmt::format("rank 0 has gone, or did not answer in time, in {}", in));
  }

  /// Rank 0 says within its own limit what became of all; it may have begun to count later.
  void receive_verdict(const char* in) {
    RankError problem;
    if (!to_root_.receive(&problem, sizeof problem, Deadline(2 * limit_))) throw lost_root(in);
    if (problem) throw CommunicatorError(std::string(problem.line()));
  }

  void send_verdict(const RankError& problem) {
    for (Socket& socket : others_)
      if (socket) socket.send(&problem, sizeof problem, Deadline(limit_));
  }

  [[noreturn]] void fail(const std::string& why) {
    RankError problem;
    problem.set(why);
    send_verdict(problem);
    throw CommunicatorError(why);
  }

  void accept_all(const Rendezvous& rendezvous, const Deadline& deadline) {
    others_.resize(size_);
    const Socket listening = listen_at(rendezvous);
    const Greeting expected = greeting_of(rendezvous);
    std::vector<Newcomer<Greeting>> newcomers;
    for (std::size_t missing = size_ - 1; missing > 0;) {
      if (!await_any(listening, newcomers, deadline)) {
        std::vector<std::size_t> ranks;
        for (std::size_t rank = 1; rank < size_; ++rank)
          if (!others_[rank]) ranks.push_back(rank);
        fail(fmt::format("rank {} did not come to {} within {} ms", fmt::join(ranks, ", "),
                         place(rendezvous), limit_.count()));
      }
      for (Newcomer<Greeting>& newcomer : newcomers) {
        if (!newcomer.complete()) continue;
        const Greeting& greeting = newcomer.greeting;
        if (greeting.magic != Greeting::kMagic || greeting.job != expected.job) {
          newcomer.socket = Socket();
          continue;
        }
        const bool is_wrong = greeting.size != expected.size || greeting.rank < 1 ||
                              greeting.rank >= greeting.size ||
                              others_[static_cast<std::size_t>(greeting.rank)];
        if (is_wrong) {
          RankError problem;
          problem.set(
              fmt::format("a process came as rank {} of {} to {}, where rank 0 of {} waits "
                          "for ranks that have not come",
                          greeting.rank, greeting.size, place(rendezvous), size_));
          newcomer.socket.send(&problem, sizeof problem, deadline);
          fail(std::string(problem.line()));
        }
        others_[static_cast<std::size_t>(greeting.rank)] = std::move(newcomer.socket);
        --missing;
      }
      std::erase_if(newcomers, [](const auto& newcomer) { return !newcomer.socket; });
    }
    send_verdict({});
  }

  void gather(std::span<const std::byte> local, std::span<std::byte> all) {
    std::ranges::copy(local, all.begin());
    const Deadline deadline(limit_);
    std::vector<std::size_t> gone;
    for (std::size_t rank = 1; rank < size_; ++rank) {
      std::uint64_t bytes = 0;
      if (!others_[rank].receive(&bytes, sizeof bytes, deadline)) {
        gone.push_back(rank);
        continue;
      }
      if (bytes != local.size())
        fail(fmt::format("rank {} gave {} bytes to an exchange, rank 0 {}", rank, bytes,
                         local.size()));
      if (!others_[rank].receive(all.data() + rank * local.size(), local.size(), deadline))
        gone.push_back(rank);
    }
    if (!gone.empty())
      fail(fmt::format("rank {} has gone, or did not come to an exchange within {} ms",
                       fmt::join(gone, ", "), limit_.count()));
    send_verdict({});
    // All that are there get their data first: they read what comes next as its verdict.
    for (std::size_t rank = 1; rank < size_; ++rank)
      if (!others_[rank].send(all.data(), all.size(), Deadline(limit_))) gone.push_back(rank);
    if (!gone.empty()) fail(fmt::format("rank {} has gone", fmt::join(gone, ", ")));
  }

  const int rank_;
  const std::size_t size_;
  const milliseconds limit_;
  Socket to_root_;
  std::vector<Socket> others_;
};

}  // namespace

int number_in_environment(const char* variable, int least, int most) {
  const char* const text = std::getenv(variable);
  if (text == nullptr)
    throw InvalidArgument(
        fmt::format("{} is not set: start the ranks with torchrun, or set it", variable));
  const std::string_view digits = text;
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || end != digits.data() + digits.size() || value < least || value > most)
    throw InvalidArgument(
        fmt::format("{} is '{}': a number from {} to {} is wanted", variable, text, least, most));
  return value;
}

Rendezvous rendezvous_from_environment(int port) {
  constexpr int kMaxRanks = 1 << 20;
  constexpr int kMaxPort = 65535;
  Rendezvous rendezvous;
  rendezvous.size = number_in_environment("WORLD_SIZE", 1, kMaxRanks);
  rendezvous.rank = number_in_environment("RANK", 0, rendezvous.size - 1);
  rendezvous.port = port != 0 ? port : number_in_environment("MASTER_PORT", 1, kMaxPort - 1) + 1;
  const char* const address = std::getenv("MASTER_ADDR");
  if (address == nullptr || *address == '\0')
    throw InvalidArgument("MASTER_ADDR is not set: start the ranks with torchrun, or set it");
  rendezvous.address = address;
  if (const char* const job = std::getenv("TORCHELASTIC_RUN_ID")) rendezvous.job = job;
  return rendezvous;
}

HostAllGather socket_exchange(const Rendezvous& rendezvous, std::chrono::milliseconds limit) {
  if (rendezvous.size < 1 || rendezvous.rank < 0 || rendezvous.rank >= rendezvous.size)
    throw InvalidArgument(fmt::format("rank {} of {}", rendezvous.rank, rendezvous.size));
  const auto connections = std::make_shared<Connections>(rendezvous, limit);
  return [connections](std::span<const std::byte> local, std::span<std::byte> all) {
    connections->exchange(local, all);
  };
}

}  // namespace polypath
