// The C API of exchanges that are ready-made (comm.h).
#include <chrono>
#include <cstdlib>
#include <memory>

#include "comm/socket_bootstrap.hpp"
#include "comm/thread_bootstrap.hpp"
#include "core/c_boundary.hpp"
#include "polypath/comm.h"

struct polypath_bootstrap {
  int rank = 0;
  int size = 1;
  polypath::HostAllGather exchange;
};

using namespace polypath;

namespace {

std::chrono::milliseconds limit_of(uint32_t timeout_ms) {
  require(timeout_ms > 0, "timeout_ms is 0");
  return std::chrono::milliseconds(timeout_ms);
}

}  // namespace

polypath_status polypath_bootstrap_from_environment(uint32_t port, uint32_t timeout_ms,
                                                    polypath_bootstrap** meeting) {
  return guarded([&] {
    require(meeting != nullptr, "meeting is null");
    require(port <= 65535, "port is more than 65535");
    const auto limit = limit_of(timeout_ms);
    auto bootstrap = std::make_unique<polypath_bootstrap>();
    if (std::getenv("RANK") == nullptr && std::getenv("WORLD_SIZE") == nullptr) {
      bootstrap->exchange = thread_exchanges(1, limit).front();
    } else {
      const Rendezvous rendezvous = rendezvous_from_environment(static_cast<int>(port));
      bootstrap->rank = rendezvous.rank;
      bootstrap->size = rendezvous.size;
      bootstrap->exchange = socket_exchange(rendezvous, limit);
    }
    *meeting = bootstrap.release();
  });
}

polypath_status polypath_bootstrap_threads(int size, uint32_t timeout_ms,
                                           polypath_bootstrap** meetings) {
  return guarded([&] {
    require(size > 0, "size is not positive");
    require(meetings != nullptr, "meetings is null");
    auto exchanges = thread_exchanges(size, limit_of(timeout_ms));
    std::vector<std::unique_ptr<polypath_bootstrap>> bootstraps;
    for (int rank = 0; rank < size; ++rank)
      bootstraps.push_back(std::make_unique<polypath_bootstrap>(
          polypath_bootstrap{rank, size, std::move(exchanges[static_cast<std::size_t>(rank)])}));
    for (std::size_t i = 0; i < bootstraps.size(); ++i) meetings[i] = bootstraps[i].release();
  });
}

int polypath_bootstrap_all_gather(const void* local, void* all, size_t bytes, void* meeting) {
  return guarded([&] {
    require(meeting != nullptr, "meeting is null");
    require((local != nullptr && all != nullptr) || bytes == 0, "local or all is null");
    const auto& bootstrap = *static_cast<const polypath_bootstrap*>(meeting);
    bootstrap.exchange(
        {static_cast<const std::byte*>(local), bytes},
        {static_cast<std::byte*>(all), bytes * static_cast<std::size_t>(bootstrap.size)});
  });
}

int polypath_bootstrap_rank(const polypath_bootstrap* meeting) {
  return meeting == nullptr ? -1 : meeting->rank;
}

int polypath_bootstrap_size(const polypath_bootstrap* meeting) {
  return meeting == nullptr ? -1 : meeting->size;
}

void polypath_bootstrap_destroy(polypath_bootstrap* meeting) { delete meeting; }
