#include "exec/route_resources.hpp"

#include <algorithm>
#include <cstddef>
#include <thread>

#include "base/log.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/failed_run.hpp"

namespace polypath {
namespace {

constexpr std::size_t kMaxChannels = 4;   ///< a link
constexpr std::size_t kEventsAhead = 32;  ///< a GPU, so that a transfer creates none

/// A stream takes 1021 operations (4 x H200, driver 580); the next call waits until it moves. What
/// is queued on a channel stays below, so that no call for it ever waits.
constexpr int kMaxOperations = 896;
constexpr int kMaxOperationsAlone = 960;
/// Nor may a stream that is held back be full of forks and joins long before it is full of copies.
constexpr std::size_t kMaxRuns = 64;
/// A stream that is held back and has this number of split transfers on it has enough of them.
constexpr std::size_t kManyRuns = kMaxRuns / 2;
/// A stream with this number of transfers of which none has begun is held back.
constexpr std::size_t kHeldRuns = 4;

/// Small staging memories have small rings; large ones more rings, not larger ones.
RingLimits limits_for(std::uint64_t staging_bytes) {
  constexpr std::uint64_t page = 4 * kKiB;
  RingLimits limits;
  limits.gpu = std::min(limits.gpu, staging_bytes / 3 / page * page);
  limits.host = std::min(limits.host, staging_bytes / 4 / page * page);
  limits.max_in_gpu = static_cast<int>(staging_bytes / limits.gpu);
  limits.max_in_host = static_cast<int>(staging_bytes / limits.host);
  return limits;
}

}  // namespace

RouteResources::RouteResources(std::shared_ptr<const CudaDriver> driver, const Node& node,
                               Devices& devices, std::uint64_t staging_bytes)
    : driver_(std::move(driver)),
      node_(node),
      devices_(devices),
      rings_(limits_for(staging_bytes)),
      events_(driver_, devices),
      timed_events_(driver_, devices, CU_EVENT_DEFAULT) {}

RouteResources::~RouteResources() {
  for (auto& [link, channels] : channels_)
    for (auto& channel : channels)
      if (devices_.alive(channel->gpu)) POLYPATH_WARN(*driver_, stream_destroy(channel->stream));
  // To wait for work under way could be to wait for the caller: it may hold a stream for longer.
  const bool may_ask = !devices_.any_reset();
  for (auto& [memory, rings] : rings_of_)
    for (auto& ring : rings) {
      if (devices_.gpu_of(ring->memory->context()) < 0) {
        ring->memory->abandon();
      } else if (may_ask) {
        ring->queue.prune(*driver_);
        if (!ring->queue.empty()) ring->memory->leave();
      }
    }
}

int RouteResources::issuer(int link) const {
  // A GPU pushes over its NVLink; a host link is driven by its GPU either way.
  const Link& node_link = node_.links[static_cast<std::size_t>(link)];
  return node_link.from.is_gpu() ? node_link.from.index : node_link.to.index;
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
  const int holder = via.is_gpu() ? via.index : gpu;
  if (via.is_gpu()) devices_.require_staging(holder, rings_.gpu);
  auto memory =
      std::make_unique<StagingMemory>(driver_, node_, via, via.is_gpu() ? rings_.gpu : rings_.host,
                                      holder, devices_.context(holder), devices_.pinned());
  std::set<int> reached_by;
  {
    const std::lock_guard lock(mutex_);
    reached_by = reached_by_[via];
  }
  for (const int other : reached_by) memory->enable_access(other);
  auto ring = std::make_unique<Ring>(std::move(memory));
  const std::lock_guard lock(mutex_);
  rings_of_[via].push_back(std::move(ring));
}

void RouteResources::enable_access(MemoryId via, int gpu) {
  std::vector<StagingMemory*> known;
  {
    const std::lock_guard lock(mutex_);
    if (reached_by_[via].contains(gpu)) return;
    for (const auto& ring : rings_of_[via]) known.push_back(ring->memory.get());
  }
  for (StagingMemory* const memory : known) memory->enable_access(gpu);
  const std::lock_guard lock(mutex_);
  reached_by_[via].insert(gpu);
}

RouteResources::RouteGpus RouteResources::gpus_of(const Route& route) const {
  RouteGpus gpus{-1, -1, -1, -1};
  if (!route.staged()) return gpus;
  for (std::size_t leg = 0; leg < 2; ++leg) {
    const Link& link = node_.links[static_cast<std::size_t>(route.legs[leg])];
    if (link.from.is_gpu()) gpus[2 * leg] = link.from.index;
    if (link.to.is_gpu()) gpus[2 * leg + 1] = link.to.index;
  }
  return gpus;
}

void RouteResources::mark_failed_gpus(const Route& route) noexcept {
  if (!route.staged()) return;
  for (const int leg : route.legs) {
    const Channel* channel = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto known = channels_.find(leg);
      if (known == channels_.end() || known->second.empty()) continue;
      channel = known->second.front().get();
    }
    const CUresult result = persistent_error(*driver_, channel->stream);
    if (result != CUDA_SUCCESS && devices_.alive(channel->gpu))
      devices_.mark_failed(channel->gpu, result);
  }
}

bool RouteResources::has_failed_gpu(const Route& route) const {
  return std::ranges::any_of(gpus_of(route),
                             [&](int gpu) { return gpu >= 0 && devices_.has_failed(gpu); });
}

bool RouteResources::has_context(int gpu) {
  try {
    return devices_.context_if_active(gpu) != nullptr;
  } catch (const DriverError&) {
    return false;
  }
}

void RouteResources::prepare_link(int link, int copies, std::chrono::microseconds pause) {
  const auto rest = [pause] {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
  };
  const Link& node_link = node_.links[static_cast<std::size_t>(link)];
  if (node_link.from.is_gpu() && node_link.to.is_gpu()) {
    devices_.enable_peer_access(node_link.from.index, node_link.to.index);
    rest();
  }
  events_.reserve(issuer(link), kEventsAhead);
  const auto channels = [&] {
    const std::lock_guard lock(mutex_);
    return channels_[link].size();
  };
  std::mutex& link_turn = [&]() -> std::mutex& {
    const std::lock_guard lock(mutex_);
    return link_turns_[link];
  }();
  const std::lock_guard turn(link_turn);
  while (channels() < std::min(static_cast<std::size_t>(std::max(1, copies)), kMaxChannels)) {
    add_channel(link);
    rest();
  }
}

bool RouteResources::is_link_ready(int link) {
  const std::lock_guard lock(mutex_);
  const auto channels = channels_.find(link);
  return channels != channels_.end() && !channels->second.empty();
}

std::optional<int> RouteResources::next_link_size(int link) {
  const std::lock_guard lock(mutex_);
  const auto channels = channels_.find(link);
  const std::size_t have = channels == channels_.end() ? 0 : channels->second.size();
  if (have >= kMaxChannels) return std::nullopt;
  return static_cast<int>(have) + 1;
}

void RouteResources::prepare(const Route& route, int copies, std::chrono::microseconds pause) {
  if (!route.staged()) return;
  const auto count = static_cast<std::size_t>(std::max(1, copies));
  const auto turn_of = [this](auto& turns, const auto& key) -> std::mutex& {
    const std::lock_guard lock(mutex_);
    return turns[key];
  };
  const auto rest = [pause] {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
  };
  for (const int leg : route.legs) prepare_link(leg, copies, pause);
  const std::lock_guard turn(turn_of(memory_turns_, route.via));
  for (const int leg : route.legs) enable_access(route.via, issuer(leg));
  const auto rings = [&] {
    const std::lock_guard lock(mutex_);
    return rings_of_[route.via].size();
  };
  const auto most = static_cast<std::size_t>(rings_.max_in(route.via));
  while (rings() < std::min(count, most)) {
    add_ring(route.via, issuer(route.legs.front()));
    rest();
  }
}

bool RouteResources::ready(const Route& route) {
  if (!route.staged()) return true;
  const std::lock_guard lock(mutex_);
  const auto rings = rings_of_.find(route.via);
  if (rings == rings_of_.end() || rings->second.empty()) return false;
  const std::set<int>& reached_by = reached_by_[route.via];
  return std::ranges::all_of(route.legs, [&](int leg) {
    const auto channels = channels_.find(leg);
    return channels != channels_.end() && !channels->second.empty() &&
           reached_by.contains(issuer(leg));
  });
}

bool RouteResources::used_by_another(const Route& route, const CallerStream& caller) {
  const std::lock_guard lock(mutex_);
  const auto rings = rings_of_.find(route.via);
  return rings != rings_of_.end() && std::ranges::any_of(rings->second, [&](const auto& ring) {
           ring->queue.prune(*driver_);
           return !ring->queue.empty() && ring->queue.ticket().caller() != caller;
         });
}

std::optional<int> RouteResources::next_size(const Route& route) {
  // A prepare() for n copies widens all that has fewer than n, as far as its limit goes.
  std::size_t least = kMaxChannels;
  const auto consider = [&](std::size_t have, std::size_t limit) {
    if (have < limit) least = std::min(least, have);
  };
  const std::lock_guard lock(mutex_);
  const auto rings = rings_of_.find(route.via);
  consider(rings == rings_of_.end() ? 0 : rings->second.size(),
           static_cast<std::size_t>(rings_.max_in(route.via)));
  for (const int leg : route.legs) {
    const auto channels = channels_.find(leg);
    consider(channels == channels_.end() ? 0 : channels->second.size(), kMaxChannels);
  }
  if (least >= kMaxChannels) return std::nullopt;
  return static_cast<int>(least) + 1;
}

std::uint64_t RouteResources::staging_bytes(MemoryId memory) {
  const std::lock_guard lock(mutex_);
  const auto rings = rings_of_.find(memory);
  if (rings == rings_of_.end()) return 0;
  return rings->second.size() * (memory.is_gpu() ? rings_.gpu : rings_.host);
}

// ---- leases ------------------------------------------------------------------------------------

void RunQueue::add(std::shared_ptr<TransferState> ticket, std::shared_ptr<PooledEvent> end,
                   int operations) {
  runs_.push_back({std::move(ticket), std::move(end), operations});
  operations_ += operations;
}

void RunQueue::prune(const CudaDriver& driver) {
  while (!runs_.empty() && runs_.front().end->has_completed(driver)) {
    operations_ -= runs_.front().operations;
    runs_.pop_front();
  }
}

Channel* RouteResources::find_channel(int link, TransferState& ticket, int operations,
                                      bool& filled) {
  const auto fits = [&](const Channel& channel) {
    if (!channel.queue.empty())
      return channel.queue.operations() + operations <= kMaxOperations &&
             channel.queue.size() < kMaxRuns;
    // What starts at once makes room for itself.
    return operations <= kMaxOperationsAlone ||
           driver_->stream_query(ticket.caller().stream) == CUDA_SUCCESS;
  };
  Channel* free = nullptr;
  for (const auto& candidate : channels_[link]) {
    Channel& channel = *candidate;
    if (channel.broken || channel.lent) continue;
    channel.queue.prune(*driver_);
    if (!channel.queue.empty() && channel.queue.ticket().caller() == ticket.caller()) {
      // A stream that is held back fills one channel, and leaves the others to others.
      if (fits(channel)) return &channel;
      if (channel.queue.oldest().started(*driver_)) continue;
      filled = channel.queue.size() >= kManyRuns;
      return nullptr;
    }
    if (free != nullptr || !fits(channel)) continue;
    if (channel.queue.empty() || channel.queue.ticket().started(*driver_)) free = &channel;
  }
  return free;
}

Ring* RouteResources::find_ring(MemoryId via, TransferState& ticket, bool& filled) {
  // Best the ring of the stream's last transfer, which comes before this one anyway, so that a
  // graph finds the addresses that it holds; then an unused one; then one to wait for.
  // Within a sequence the last transfer may still use its ring, so that one comes last.
  Ring* best = nullptr;
  int best_rank = 4;
  for (const auto& candidate : rings_of_[via]) {
    Ring& ring = *candidate;
    if (ring.broken || ring.lent) continue;
    ring.queue.prune(*driver_);
    const bool own = ring.turn != 0 && ring.lent_to == ticket.caller();
    if (ring.queue.size() >= kMaxRuns) {
      // As with channels: a stream that is held back fills one.
      filled = own && !ring.queue.oldest().started(*driver_);
      if (filled) return nullptr;
      continue;
    }
    int rank = 3;
    if (own && (ring.queue.empty() || !ticket.in_sequence())) {
      rank = 0;
    } else if (ring.queue.empty()) {
      rank = 1;
    } else if (own) {
      rank = 2;
    } else if (!ring.queue.ticket().allows(ticket, *driver_)) {
      continue;
    }
    // Among busy rings, the one that was taken longest ago.
    if (rank < best_rank || (rank >= 2 && best_rank == rank && ring.turn < best->turn)) {
      best = &ring;
      best_rank = rank;
    }
    if (rank == 0) break;
  }
  return best;
}

bool RouteResources::is_held_back(const RunQueue& queue, const TransferState& ticket) const {
  return queue.size() >= kHeldRuns && queue.ticket().caller() == ticket.caller() &&
         !queue.oldest().started(*driver_);
}

void RouteResources::lend(Leasable& what, const TransferState& ticket) {
  what.lent = true;
  what.turn = ++turns_;
  what.lent_to = ticket.caller();
}

std::optional<RouteLease> RouteResources::lease(const Route& route,
                                                const std::shared_ptr<TransferState>& ticket,
                                                const std::optional<std::array<int, 2>>& operations,
                                                bool& filled) {
  RouteLease lease;
  const std::lock_guard lock(mutex_);
  if (operations) {
    for (std::size_t leg = 0; leg < 2; ++leg) {
      lease.channels_[leg] = find_channel(route.legs[leg], *ticket, (*operations)[leg], filled);
      if (lease.channels_[leg] == nullptr) return std::nullopt;
    }
    lease.operations_ = *operations;
    lease.is_held_back_ = is_held_back(lease.channels_[0]->queue, *ticket);
  }
  for (std::size_t leg = 0; leg < 2; ++leg) {
    const auto channels = channels_.find(route.legs[leg]);
    if (channels == channels_.end() || channels->second.empty()) return std::nullopt;
    lease.any_[leg] = channels->second.front().get();
  }
  lease.ring_ = find_ring(route.via, *ticket, filled);
  if (lease.ring_ == nullptr) return std::nullopt;
  if (const RunQueue& queue = lease.ring_->queue; !queue.empty()) {
    if (!ticket->follows(queue.ticket())) lease.ring_free_ = queue.end();
  }
  lease.ticket_ = ticket;
  for (std::size_t leg = 0; leg < 2; ++leg)
    if (lease.channels_[leg] != nullptr) lend(*lease.channels_[leg], *ticket);
  lend(*lease.ring_, *ticket);
  lease.owner_ = this;
  return lease;
}

std::optional<RouteLease> RouteResources::lease_link(int link,
                                                     const std::shared_ptr<TransferState>& ticket,
                                                     int operations) {
  RouteLease lease;
  const std::lock_guard lock(mutex_);
  bool filled = false;
  Channel* const channel = find_channel(link, *ticket, operations, filled);
  if (channel == nullptr) return std::nullopt;
  lease.channels_[0] = channel;
  lease.any_[0] = channel;
  lease.operations_[0] = operations;
  lease.ticket_ = ticket;
  lend(*channel, *ticket);
  lease.owner_ = this;
  return lease;
}

void RouteLease::swap(RouteLease& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(ticket_, other.ticket_);
  std::swap(channels_, other.channels_);
  std::swap(any_, other.any_);
  std::swap(operations_, other.operations_);
  std::swap(ring_, other.ring_);
  std::swap(ring_free_, other.ring_free_);
  std::swap(is_held_back_, other.is_held_back_);
  std::swap(begun_, other.begun_);
}

void RouteLease::finish(std::shared_ptr<PooledEvent> end) {
  const std::lock_guard lock(owner_->mutex_);
  for (std::size_t leg = 0; leg < 2; ++leg)
    if (channels_[leg] != nullptr) channels_[leg]->queue.add(ticket_, end, operations_[leg]);
  if (ring_ != nullptr) ring_->queue.add(ticket_, std::move(end), 1);
  begun_ = false;
  release_locked();
}

void RouteLease::release_locked() noexcept {
  const auto lend_one = [&](Leasable& what) {
    what.lent = false;
    if (begun_) what.broken = true;
  };
  for (Channel* const channel : channels_)
    if (channel != nullptr) lend_one(*channel);
  if (ring_ != nullptr) lend_one(*ring_);
  owner_ = nullptr;
}

RouteLease::~RouteLease() {
  if (owner_ == nullptr) return;
  if (begun_) {
    // The warning about a GPU that has failed says it all.
    const bool is_known = std::ranges::any_of(any_, [&](const Channel* channel) {
      return channel != nullptr && owner_->devices_.has_failed(channel->gpu);
    });
    log_message(is_known ? LogLevel::info : LogLevel::warn,
                "streams and staging memory are not used again after a failed transfer");
  }
  const std::lock_guard lock(owner_->mutex_);
  release_locked();
}

}  // namespace polypath
