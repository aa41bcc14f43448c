#include "exec/route_resources.hpp"

#include <algorithm>
#include <cstddef>

#include "base/log.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "exec/context_guard.hpp"
#include "exec/numa_binding.hpp"

namespace polypath {
namespace {

constexpr std::size_t kMostChannels = 4;  ///< a link
constexpr std::size_t kEventsAhead = 32;  ///< a GPU, so that a transfer creates none

/// Small staging memories have small rings; large ones more rings, not larger ones.
RingLimits limits_for(std::uint64_t staging_bytes) {
  constexpr std::uint64_t page = 4 * kKiB;
  RingLimits limits;
  limits.gpu = std::min(limits.gpu, staging_bytes / 3 / page * page);
  limits.host = std::min(limits.host, staging_bytes / 4 / page * page);
  limits.most_in_gpu = static_cast<int>(staging_bytes / limits.gpu);
  limits.most_in_host = static_cast<int>(staging_bytes / limits.host);
  return limits;
}

}  // namespace

RouteResources::RouteResources(std::shared_ptr<const CudaDriver> driver, const Node& node,
                               Devices& devices, std::uint64_t staging_bytes)
    : driver_(std::move(driver)),
      node_(node),
      devices_(devices),
      rings_(limits_for(staging_bytes)),
      events_(driver_, devices) {}

RouteResources::~RouteResources() {
  try {
    ContextGuard guard(*driver_);
    for (auto& [link, channels] : channels_)
      for (auto& channel : channels) POLYPATH_WARN(*driver_, stream_destroy(channel->stream));
    for (auto& [memory, rings] : rings_of_) {
      for (auto& ring : rings) {
        guard.use(ring->context);
        if (memory.is_gpu()) {
          POLYPATH_WARN(*driver_, mem_free(ring->memory));
        } else {
          POLYPATH_WARN(*driver_, mem_free_host(reinterpret_cast<void*>(ring->memory)));
        }
      }
    }
  } catch (const Error& error) {
    log_warn("staging memory was not freed: {}", error.what());
  }
}

int RouteResources::issuer(int link) const {
  // A GPU pushes over its NVLink; a host link is driven by its GPU either way.
  const Link& one = node_.links[static_cast<std::size_t>(link)];
  return one.from.is_gpu() ? one.from.index : one.to.index;
}

void RouteResources::add_channel(int link) {
  auto channel = std::make_unique<Channel>();
  channel->gpu = issuer(link);
  channel->context = devices_.context(channel->gpu);
  ContextGuard guard(*driver_);
  guard.use(channel->context);
  POLYPATH_CHECK(*driver_, stream_create(&channel->stream, CU_STREAM_NON_BLOCKING));
  const std::lock_guard lock(mutex_);
  channels_[link].push_back(std::move(channel));
}

void RouteResources::add_ring(MemoryId via, int gpu) {
  auto ring = std::make_unique<Ring>();
  ring->bytes = via.is_gpu() ? rings_.gpu : rings_.host;
  ring->context = devices_.context(via.is_gpu() ? via.index : gpu);
  ContextGuard guard(*driver_);
  guard.use(ring->context);
  if (via.is_gpu()) {
    POLYPATH_CHECK(*driver_, mem_alloc(&ring->memory, ring->bytes));
  } else {
    const NumaBinding near(node_.hosts[static_cast<std::size_t>(via.index)].numa);
    void* memory = nullptr;
    POLYPATH_CHECK(*driver_, mem_host_alloc(&memory, ring->bytes, CU_MEMHOSTALLOC_PORTABLE));
    ring->memory = reinterpret_cast<CUdeviceptr>(memory);
  }
  const std::lock_guard lock(mutex_);
  rings_of_[via].push_back(std::move(ring));
}

void RouteResources::prepare(const Route& route, int copies) {
  if (!route.staged()) return;
  const std::lock_guard turn(preparing_);
  const auto wanted = static_cast<std::size_t>(std::max(1, copies));
  for (const int leg : route.legs) {
    const Link& link = node_.links[static_cast<std::size_t>(leg)];
    if (link.from.is_gpu() && link.to.is_gpu())
      devices_.enable_peer_access(link.from.index, link.to.index);
    {
      const int gpu = issuer(leg);
      devices_.context(gpu);
      const std::lock_guard lock(mutex_);
      events_.reserve(gpu, kEventsAhead);
    }
    const auto channels = [&] {
      const std::lock_guard lock(mutex_);
      return channels_[leg].size();
    };
    while (channels() < std::min(wanted, kMostChannels)) add_channel(leg);
  }
  const auto rings = [&] {
    const std::lock_guard lock(mutex_);
    return rings_of_[route.via].size();
  };
  const auto most = static_cast<std::size_t>(rings_.most_in(route.via));
  while (rings() < std::min(wanted, most)) add_ring(route.via, issuer(route.legs.front()));
}

bool RouteResources::ready(const Route& route) const {
  if (!route.staged()) return true;
  const auto rings = rings_of_.find(route.via);
  if (rings == rings_of_.end() || rings->second.empty()) return false;
  return std::ranges::all_of(route.legs, [&](int leg) {
    const auto channels = channels_.find(leg);
    return channels != channels_.end() && !channels->second.empty();
  });
}

bool RouteResources::used_by_another(const Route& route, const CallerStream& caller) const {
  const auto rings = rings_of_.find(route.via);
  return rings != rings_of_.end() && std::ranges::any_of(rings->second, [&](const auto& ring) {
           return ring->tail != nullptr && ring->tail->caller() != caller &&
                  ring->last_read != nullptr &&
                  driver_->event_query(ring->last_read->get()) == CUDA_ERROR_NOT_READY;
         });
}

std::optional<int> RouteResources::next_size(const Route& route) const {
  // A prepare() for n copies widens whatever has fewer than n, as far as its limit goes.
  std::size_t least = kMostChannels;
  const auto consider = [&](std::size_t have, std::size_t limit) {
    if (have < limit) least = std::min(least, have);
  };
  const auto rings = rings_of_.find(route.via);
  consider(rings == rings_of_.end() ? 0 : rings->second.size(),
           static_cast<std::size_t>(rings_.most_in(route.via)));
  for (const int leg : route.legs) {
    const auto channels = channels_.find(leg);
    consider(channels == channels_.end() ? 0 : channels->second.size(), kMostChannels);
  }
  if (least >= kMostChannels) return std::nullopt;
  return static_cast<int>(least) + 1;
}

Channel* RouteResources::find_channel(int link, const Ticket& ticket, std::uint64_t run) {
  for (auto& channel : channels_[link]) {
    if (channel->broken) continue;
    // Another transfer of this group, on a stream of its own, has not started either.
    if (channel->run == run && channel->leased_to != ticket.caller()) continue;
    if (channel->tail == nullptr || channel->tail->allows(ticket, *driver_)) return channel.get();
  }
  return nullptr;
}

Ring* RouteResources::find_ring(MemoryId via, const Ticket& ticket, std::uint64_t run) {
  // Best the ring of the stream's last transfer, which comes before this one anyway, so that a graph
  // finds the addresses that it holds; then one that nobody uses; then one to wait for.
  Ring* best = nullptr;
  int best_rank = 3;
  for (const auto& candidate : rings_of_[via]) {
    Ring& ring = *candidate;
    if (ring.broken || ring.run == run) continue;
    int rank = 2;
    if (ring.tail == nullptr) {
      rank = 1;
    } else if (ring.tail->caller() == ticket.caller()) {
      rank = 0;
    } else if (!ring.tail->allows(ticket, *driver_)) {
      continue;
    } else if (ring.last_read == nullptr ||
               driver_->event_query(ring.last_read->get()) == CUDA_SUCCESS) {
      ring.last_read = nullptr;
      rank = 1;
    }
    // Of those that are busy, the one that was taken longest ago.
    if (rank < best_rank || (rank == 2 && best_rank == 2 && ring.run < best->run)) {
      best = &ring;
      best_rank = rank;
    }
    if (rank == 0) break;
  }
  return best;
}

std::optional<RouteLease> RouteResources::lease(const Route& route, const RouteEnds& ends,
                                                const std::shared_ptr<Ticket>& ticket,
                                                std::uint64_t run) {
  RouteLease lease;
  lease.first = find_channel(route.legs[0], *ticket, run);
  lease.second = find_channel(route.legs[1], *ticket, run);
  if (lease.first == nullptr || lease.second == nullptr) return std::nullopt;
  lease.ring = find_ring(route.via, *ticket, run);
  if (lease.ring == nullptr) return std::nullopt;
  lease.ends = ends;
  // A later transfer of the same stream is forked behind the end of the one before.
  if (lease.ring->tail != nullptr && lease.ring->tail->caller() != ticket->caller())
    lease.ring_free = lease.ring->last_read;
  lease.ring->run = run;
  for (Channel* channel : {lease.first, lease.second}) {
    channel->run = run;
    channel->leased_to = ticket->caller();
  }
  return lease;
}

std::uint64_t RouteResources::staging_bytes(MemoryId memory) {
  const std::lock_guard lock(mutex_);
  const auto rings = rings_of_.find(memory);
  if (rings == rings_of_.end()) return 0;
  return rings->second.size() * (memory.is_gpu() ? rings_.gpu : rings_.host);
}

}  // namespace polypath
