#include "comm/message_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

/// Exchanges that may be under way at once.
constexpr std::size_t kRegions = 4;
/// Words in cache lines of their own.
constexpr std::uint64_t kWordBytes = 128;
constexpr std::uint64_t kTags = 32768;

}  // namespace

MessageNetwork::MessageNetwork(Communicator& local, const NodeMap& map,
                               const polypath_network& network)
    : local_(local), map_(map), network_(network) {
  const CudaDriver& driver = local_.driver();
  const CurrentContext current(driver, local_.context());
  void* memory = nullptr;
  POLYPATH_CHECK(driver, mem_host_alloc(&memory, kRegions * (2 * kExchangeBytes + kWordBytes),
                                        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  memory_ = static_cast<std::byte*>(memory);
  try {
    std::byte* const words = memory_ + kRegions * 2 * kExchangeBytes;
    for (std::size_t i = 0; i < kRegions; ++i)
      regions_.push_back({memory_ + 2 * i * kExchangeBytes,
                          memory_ + (2 * i + 1) * kExchangeBytes,
                          new (words + i * kWordBytes) std::uint64_t{0},
                          Event(driver, local_.context(), CU_EVENT_DISABLE_TIMING)});
    if (network_.begin(network_.user) != 0)
      throw CommunicatorError("the network between nodes could not begin");
  } catch (...) {
    POLYPATH_WARN(driver, mem_free_host(memory_));
    throw;
  }
  if (network_.by_caller == 0)
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

MessageNetwork::~MessageNetwork() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const Exchange& each : pending_) is_lost_ = is_lost_ || each.has_begun;
    pending_.clear();
  }
  if (is_lost_) {
    log_warn("rank {}: messages to other nodes are under way, and their memory is left", map_.rank);
    return;
  }
  const CurrentContext current(local_.driver(), local_.context(), std::nothrow);
  POLYPATH_WARN(local_.driver(), mem_free_host(memory_));
  network_.end(network_.user);
}

Event MessageNetwork::take_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      Event event = std::move(events_.back());
      events_.pop_back();
      return event;
    }
  }
  return {local_.driver(), local_.context(), CU_EVENT_DISABLE_TIMING};
}

void MessageNetwork::exchange(std::span<const NetworkMessage> sends,
                              std::span<const NetworkMessage> receives, CUstream stream) {
  const CudaDriver& driver = local_.driver();
  const std::uint64_t number = number_ + 1;
  Region& region = regions_[number % kRegions];
  if (region.was_used) POLYPATH_CHECK(driver, stream_wait_event(stream, region.emptied.get(), 0));

  Exchange mine{number, take_event(), region.word, false, {}, {}};
  const auto add = [&](std::vector<Message>& to, const NetworkMessage& message, std::byte* memory) {
    if (message.bytes > 0)
      to.push_back({map_.rank_at(message.node, map_.local()), memory, message.bytes, 0, false});
  };
  std::uint64_t used = 0;
  const NetworkMessage* staged = nullptr;
  for (const NetworkMessage& send : sends) {
    // What goes to several nodes is copied once.
    const bool is_there =
        staged != nullptr && staged->address == send.address && staged->bytes == send.bytes;
    if (!is_there) {
      if (staged != nullptr) used += staged->bytes;
      staged = &send;
      if (used + send.bytes > kExchangeBytes) throw InvalidArgument("an exchange sends too much");
      if (send.bytes > 0)
        POLYPATH_CHECK(driver,
                       memcpy_async(std::bit_cast<CUdeviceptr>(region.sends + used), send.address,
                                    send.bytes, stream));
    }
    add(mine.sends, send, region.sends + used);
    sent_bytes_ += send.bytes;
  }
  POLYPATH_CHECK(driver, event_record(mine.staged.get(), stream));
  local_.wait_exchanges(region.word, number, stream);
  used = 0;
  for (const NetworkMessage& receive : receives) {
    if (used + receive.bytes > kExchangeBytes)
      throw InvalidArgument("an exchange receives too much");
    add(mine.receives, receive, region.receives + used);
    if (receive.bytes > 0)
      POLYPATH_CHECK(driver, memcpy_async(receive.address,
                                          std::bit_cast<CUdeviceptr>(region.receives + used),
                                          receive.bytes, stream));
    used += receive.bytes;
  }
  POLYPATH_CHECK(driver, event_record(region.emptied.get(), stream));
  region.was_used = true;
  number_ = number;
  const std::lock_guard lock(mutex_);
  pending_.push_back(std::move(mine));
  came_.notify_one();
}

void MessageNetwork::begin(Exchange& exchange) {
  const int tag = static_cast<int>(exchange.number % kTags);
  exchange.has_begun = true;
  for (Message& message : exchange.receives)
    if (network_.receive(network_.user, message.rank, tag, message.memory, message.bytes,
                         &message.request) != 0)
      throw CommunicatorError(
          fmt::format("no message can be received from rank {}", message.rank));
  for (Message& message : exchange.sends)
    if (network_.send(network_.user, message.rank, tag, message.memory, message.bytes,
                      &message.request) != 0)
      throw CommunicatorError(fmt::format("no message can be sent to rank {}", message.rank));
}

bool MessageNetwork::advance(Exchange& exchange) {
  if (!exchange.has_begun) {
    const CUresult result = local_.driver().event_query(exchange.staged.get());
    if (result == CUDA_ERROR_NOT_READY) return false;
    POLYPATH_CHECK(local_.driver(), event_query(exchange.staged.get()));
    begin(exchange);
  }
  bool are_done = true;
  const auto look = [&](std::vector<Message>& messages) {
    for (Message& message : messages) {
      if (message.is_done) continue;
      int done = 0;
      if (network_.test(network_.user, &message.request, &done) != 0)
        throw CommunicatorError(fmt::format("the message with rank {} failed", message.rank));
      message.is_done = done != 0;
      are_done = are_done && message.is_done;
    }
  };
  look(exchange.receives);
  look(exchange.sends);
  if (are_done)
    std::atomic_ref(*exchange.word).store(exchange.number, std::memory_order_release);
  return are_done;
}

void MessageNetwork::advance_all() noexcept {
  try {
    if (local_.aborted()) {
      for (const Exchange& exchange : pending_) is_lost_ = is_lost_ || exchange.has_begun;
      pending_.clear();
    }
    for (auto next = pending_.begin(); next != pending_.end();) {
      if (advance(*next)) {
        events_.push_back(std::move(next->staged));
        next = pending_.erase(next);
      } else {
        ++next;
      }
    }
  } catch (const std::exception& error) {
    local_.abort(fmt::format("rank {}: exchange with other nodes: {}", map_.rank, error.what()));
  }
}

bool MessageNetwork::progress() noexcept {
  if (network_.by_caller == 0) return false;
  const std::lock_guard lock(mutex_);
  advance_all();
  return true;
}

void MessageNetwork::run(const std::stop_token& stop) {
  const CurrentContext current(local_.driver(), local_.context(), std::nothrow);
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    came_.wait(lock, stop, [&] { return !pending_.empty(); });
    advance_all();
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

}  // namespace polypath
