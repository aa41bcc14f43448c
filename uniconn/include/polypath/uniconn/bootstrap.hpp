// How ranks find each other before any library has them.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "polypath/comm.h"
#include "polypath/uniconn/types.hpp"

namespace polypath::uniconn {

/// One rank of those that meet. A value; what is after it lives as long as a copy of it.
class Bootstrap {
 public:
  /// By an exchange of the caller (comm.h); `owner` keeps what `user` points to. `is_thread`:
  /// the ranks are threads of one process, each with an Environment of its own.
  Bootstrap(int rank, int size, polypath_all_gather_fn exchange, void* user,
            std::shared_ptr<void> owner = nullptr, bool is_thread = false)
      : rank_(rank),
        size_(size),
        exchange_(exchange),
        user_(user),
        owner_(std::move(owner)),
        is_thread_(is_thread) {
    if (exchange == nullptr || size < 1 || rank < 0 || rank >= size)
      throw error(POLYPATH_INVALID_ARGUMENT, "bootstrap: a rank of a size, and an exchange");
  }

  /// The ranks by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun and others
  /// set; without those one rank alone. Waits for all to come.
  static Bootstrap environment(std::uint32_t timeout_ms = kTimeLimitMs) {
    for (const char* const launcher : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
      if (const char* const ranks = std::getenv(launcher);
          ranks != nullptr && std::string(ranks) != "1" && std::getenv("RANK") == nullptr)
        throw error(POLYPATH_INVALID_ARGUMENT,
                    (std::string(launcher) + " is " + ranks +
                     ": these ranks were started by MPI; give Environment mpi_bootstrap() of "
                     "polypath/uniconn/backend/mpi.hpp, or set RANK, WORLD_SIZE, MASTER_ADDR and "
                     "MASTER_PORT")
                        .c_str());
    polypath_bootstrap* meeting = nullptr;
    polypath::detail::check(polypath_bootstrap_from_environment(0, timeout_ms, &meeting));
    return from_handle(meeting, false);
  }

  /// `size` ranks that are threads of this process: each takes its own.
  static std::vector<Bootstrap> threads(int size, std::uint32_t timeout_ms = kTimeLimitMs) {
    std::vector<polypath_bootstrap*> meetings(size > 0 ? static_cast<std::size_t>(size) : 0);
    polypath::detail::check(polypath_bootstrap_threads(size, timeout_ms, meetings.data()));
    std::vector<Bootstrap> all;
    for (polypath_bootstrap* const meeting : meetings) all.push_back(from_handle(meeting, true));
    return all;
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] bool is_thread() const noexcept { return is_thread_; }
  [[nodiscard]] polypath_all_gather_fn function() const noexcept { return exchange_; }
  [[nodiscard]] void* user() const noexcept { return user_; }

  /// Collective: `own` of every rank, in rank order.
  template <typename T>
  [[nodiscard]] std::vector<T> gather(const T& own) const {
    std::vector<T> all(static_cast<std::size_t>(size_));
    if (exchange_(&own, all.data(), sizeof own, user_) != 0)
      throw error(
          POLYPATH_COMMUNICATOR_ERROR,
          (std::string("the exchange of the bootstrap failed: ") + polypath_last_error()).c_str());
    return all;
  }

 private:
  static constexpr std::uint32_t kTimeLimitMs = 60'000;

  static Bootstrap from_handle(polypath_bootstrap* meeting, bool is_thread) {
    const std::shared_ptr<polypath_bootstrap> owner(meeting, &polypath_bootstrap_destroy);
    return {polypath_bootstrap_rank(meeting),
            polypath_bootstrap_size(meeting),
            &polypath_bootstrap_all_gather,
            meeting,
            owner,
            is_thread};
  }

  int rank_;
  int size_;
  polypath_all_gather_fn exchange_;
  void* user_;
  std::shared_ptr<void> owner_;
  bool is_thread_;
};

namespace detail {

/// The place of this rank among the ranks of its machine.
struct NodePlace {
  int rank = 0;
  int size = 1;
};

/// Collective.
inline NodePlace node_place(const Bootstrap& bootstrap) {
  using Name = std::array<char, 256>;
  Name own_name{};
  gethostname(own_name.data(), own_name.size() - 1);
  const std::vector<Name> all = bootstrap.gather(own_name);
  NodePlace place{0, 0};
  for (int rank = 0; rank < bootstrap.size(); ++rank) {
    if (all[static_cast<std::size_t>(rank)] != own_name) continue;
    if (rank < bootstrap.rank()) ++place.rank;
    ++place.size;
  }
  return place;
}

}  // namespace detail
}  // namespace polypath::uniconn
