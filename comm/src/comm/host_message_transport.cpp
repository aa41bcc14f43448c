#include "comm/host_message_transport.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

/// Exchanges that may be under way at once.
constexpr std::size_t kRegions = 4;
constexpr std::uint64_t kTags = 32768;
/// What a message begins with: as much of its ExchangeMark as must be alike.
struct MessageHeader {
  std::uint64_t what;
  std::uint64_t count;
};
constexpr std::uint64_t kMessageHeaderBytes = sizeof(MessageHeader);
/// Messages begin at multiples of it.
constexpr std::uint64_t kMessageGranule = 16;
std::uint64_t room_of(std::uint64_t bytes) {
  return (kMessageHeaderBytes + bytes + kMessageGranule - 1) / kMessageGranule * kMessageGranule;
}
/// For the messages of one exchange with all nodes.
std::uint64_t region_bytes(const NodeMap& map) {
  return kExchangeBytes +
         static_cast<std::uint64_t>(map.nodes) * (kMessageHeaderBytes + kMessageGranule);
}

}  // namespace

HostMessageTransport::HostMessageTransport(Communicator& local, const NodeMap& map,
                                           const polypath_network& network)
    : local_(local),
      map_(map),
      network_(network),
      gate_(local, map.rank, network.progress_in_caller != 0) {
  const CudaDriver& driver = local_.driver();
  memory_ = std::make_unique<RegisteredMemory>(driver, local_.primary_context(),
                                               kRegions * 2 * region_bytes(map));
  std::byte* const first = memory_->get();
  for (std::size_t i = 0; i < kRegions; ++i)
    regions_.push_back({first + 2 * i * region_bytes(map), first + (2 * i + 1) * region_bytes(map),
                        Event(driver, local_.context(), CU_EVENT_DISABLE_TIMING)});
  if (network_.begin(network_.user) != 0)
    throw CommunicatorError("the network between nodes could not begin");
}

HostMessageTransport::~HostMessageTransport() {
  gate_.stop();
  if (under_way_ > 0) {
    log_warn("rank {}: messages to other nodes are under way, and their memory is left", map_.rank);
    RegisteredMemory::keep(std::move(memory_));
    return;
  }
  network_.end(network_.user);
}

void HostMessageTransport::exchange(std::span<const NetworkMessage> sends,
                                    std::span<const NetworkMessage> receives,
                                    const ExchangeMark& mark, CUstream stream) {
  const CudaDriver& driver = local_.driver();
  const std::uint64_t number = ++number_;
  Region& region = regions_[number % kRegions];
  if (region.was_used) POLYPATH_CHECK(driver, stream_wait_event(stream, region.emptied.get(), 0));

  const auto messages = std::make_shared<Messages>();
  messages->tag = static_cast<int>(number % kTags);
  messages->mark = mark;
  const std::uint64_t most = region_bytes(map_);
  const auto add = [&](std::vector<Message>& to, const NetworkMessage& message, std::byte* memory) {
    if (message.bytes > 0)
      to.push_back({map_.rank_at(message.node, map_.local()), message.node, memory,
                    kMessageHeaderBytes + message.bytes});
  };
  std::uint64_t used = 0;
  const NetworkMessage* staged = nullptr;
  for (const NetworkMessage& send : sends) {
    // What goes to several nodes is copied once.
    const bool is_there =
        staged != nullptr && staged->address == send.address && staged->bytes == send.bytes;
    if (!is_there) {
      if (staged != nullptr) used += room_of(staged->bytes);
      staged = &send;
      if (used + room_of(send.bytes) > most) throw InvalidArgument("an exchange sends too much");
      if (send.bytes > 0)
        POLYPATH_CHECK(driver, memcpy_async(std::bit_cast<CUdeviceptr>(region.sends + used +
                                                                       kMessageHeaderBytes),
                                            send.address, send.bytes, stream));
    }
    add(messages->sends, send, region.sends + used);
    if (send.bytes > 0) sent_bytes_ += kMessageHeaderBytes + send.bytes;
  }
  used = 0;
  for (const NetworkMessage& receive : receives) {
    if (used + room_of(receive.bytes) > most)
      throw InvalidArgument("an exchange receives too much");
    add(messages->receives, receive, region.receives + used);
    used += room_of(receive.bytes);
  }
  gate_.hold_until(stream, [this, messages] { return advance(*messages); });
  used = 0;
  for (const NetworkMessage& receive : receives) {
    if (receive.bytes > 0)
      POLYPATH_CHECK(driver, memcpy_async(receive.address,
                                          std::bit_cast<CUdeviceptr>(region.receives + used +
                                                                     kMessageHeaderBytes),
                                          receive.bytes, stream));
    used += room_of(receive.bytes);
  }
  POLYPATH_CHECK(driver, event_record(region.emptied.get(), stream));
  region.was_used = true;
}

void HostMessageTransport::begin(Messages& messages) {
  messages.have_begun = true;
  ++under_way_;
  // Not before the stream has come here: until then messages of another exchange use the memory.
  const MessageHeader header{messages.mark.what, messages.mark.count};
  for (const Message& message : messages.sends) std::memcpy(message.memory, &header, sizeof header);
  for (Message& message : messages.receives)
    if (network_.receive(network_.user, message.rank, messages.tag, message.memory, message.bytes,
                         &message.request) != 0)
      throw CommunicatorError(fmt::format("no message can be received from rank {}", message.rank));
  for (Message& message : messages.sends)
    if (network_.send(network_.user, message.rank, messages.tag, message.memory, message.bytes,
                      &message.request) != 0)
      throw CommunicatorError(fmt::format("no message can be sent to rank {}", message.rank));
}

bool HostMessageTransport::advance(Messages& messages) {
  if (!messages.have_begun) begin(messages);
  bool are_done = true;
  const auto look = [&](std::vector<Message>& some) {
    for (Message& message : some) {
      if (message.is_done) continue;
      int done = 0;
      if (network_.test(network_.user, &message.request, &done) != 0)
        throw CommunicatorError(fmt::format("the message with rank {} failed", message.rank));
      message.is_done = done != 0;
      are_done = are_done && message.is_done;
    }
  };
  look(messages.receives);
  look(messages.sends);
  if (!are_done) return false;
  --under_way_;
  require_alike(messages);
  return true;
}

void HostMessageTransport::require_alike(const Messages& messages) const {
  for (const Message& message : messages.receives) {
    MessageHeader header{};
    std::memcpy(&header, message.memory, sizeof header);
    const ExchangeMark& mark = messages.mark;
    if (header.what == mark.what && header.count == mark.count) continue;
    wait_error status{};
    status.reason = wait_error::mismatch;
    status.waited_for_rank = static_cast<std::uint32_t>(message.node);
    status.expected = std::uint64_t{mark.waits} << 32 | mark.what;
    status.seen = header.what;
    status.offset = mark.count;
    status.bytes = header.count;
    throw CommunicatorError(fmt::format("call {}: {}", mark.number, local_.describe_wait(status)));
  }
}

}  // namespace polypath
