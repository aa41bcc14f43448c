// The C API of channels and active messages (messaging/channel.h).
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "comm/comm_handle.hpp"
#include "comm/rank_threads.hpp"
#include "core/c_boundary.hpp"
#include "messaging/channel_layout.hpp"
#include "messaging/rank_memory.hpp"
#include "polypath/messaging/channel.h"

using namespace polypath;

struct polypath_channel {
  PeerMemory memory;
  device::channel_view layout;
  std::uint32_t timeout_ms;
};
struct polypath_active_messages {
  PeerMemory memory;
  device::active_messages_view layout;
  std::uint32_t timeout_ms;
};

namespace {

template <typename Options>
std::span<const std::byte> wish_of(const Options& options) {
  return std::as_bytes(std::span(&options, 1));
}

std::uint64_t address(CUdeviceptr at) { return at; }

std::unique_ptr<polypath_channel> make_channel(Communicator& communicator,
                                               const polypath_channel_options& options,
                                               const polypath_symmetric* const* windows,
                                               int count) {
  const device::channel_view layout =
      layout_of(options, communicator.rank(), communicator.size(), count);
  require(count == 0 || windows != nullptr, "windows is null");
  struct Wish {
    polypath_channel_options options;
    int count;
    int reserved = 0;
    std::array<std::uint64_t, device::channel_view::kMaxWindows> windows{};  // their numbers
  };
  Wish wish{options, count};
  for (int i = 0; i < count; ++i) {
    require(windows[i] != nullptr, "one of windows is null");
    communicator.require_own(windows[i]->memory, "one of windows");
    wish.windows.at(static_cast<std::size_t>(i)) = windows[i]->memory.number();
  }
  auto channel = std::make_unique<polypath_channel>(
      polypath_channel{PeerMemory(communicator, layout.bytes(), wish_of(wish), "a channel"), layout,
                       options.timeout_ms});
  channel->memory.meet([&] {
    std::vector<std::uint64_t> table;
    const auto add = [&](const SymmetricMemory& memory) {
      for (int rank = 0; rank < communicator.size(); ++rank)
        table.push_back(address(memory.address(rank)));
      table.push_back(memory.bytes());
    };
    add(channel->memory.memory());
    for (int i = 0; i < count; ++i) add(windows[i]->memory);
    channel->memory.write(0, table);
  });
  return channel;
}

std::unique_ptr<polypath_active_messages> make_messages(
    Communicator& communicator, const polypath_active_messages_options& options) {
  using View = device::active_messages_view;
  const View layout = layout_of(options, communicator.rank(), communicator.size());
  auto messages = std::make_unique<polypath_active_messages>(polypath_active_messages{
      PeerMemory(communicator, layout.bytes(), wish_of(options), "active messages"), layout,
      options.timeout_ms});
  messages->memory.meet([&] {
    std::vector<std::uint64_t> table;
    std::vector<std::uint64_t> closed;
    for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) {
      table.push_back(address(messages->memory.memory().address(static_cast<int>(rank))));
      for (const View::kind kind : {View::request, View::reply})
        for (std::uint32_t shard = 0; shard < layout.shards(); ++shard)
          closed.push_back(layout.ring_offset(kind, rank, shard) + View::kClosed);
    }
    messages->memory.write(0, table);
    messages->memory.write_ones(closed);
  });
  return messages;
}

/// A handle for each rank, or none, and what the first of them threw.
template <typename Handle, typename Make>
void make_all(polypath_comm* const* comms, int ranks, Handle** handles, const Make& make) {
  require_all(comms, ranks);
  require(handles != nullptr, "where the handles are to be is null");
  std::vector<std::unique_ptr<Handle>> created(static_cast<std::size_t>(ranks));
  on_threads(ranks, [&](std::size_t i) { created[i] = make(communicator_of(comms[i]), i); });
  for (std::size_t i = 0; i < created.size(); ++i) handles[i] = created[i].release();
}

template <typename Handle>
void destroy_one(Handle* handle) {
  require(handle != nullptr, "the handle is null");
  const std::unique_ptr<Handle> gone(handle);
  gone->memory.release();
}
template <typename Handle>
void destroy_all(Handle* const* handles, int ranks) {
  require_handles(handles, ranks, "the handles");
  on_threads(ranks, [&](std::size_t i) { destroy_one(handles[i]); });
}

template <typename Handle>
void give_view(const Handle* handle, void* view, std::size_t bytes) {
  require(handle != nullptr, "the handle is null");
  require(view != nullptr, "view is null");
  auto layout = handle->layout;
  require(bytes == sizeof layout,
          "bytes is not the size of the view: the headers are of another version");
  layout.local = handle->memory.template local<unsigned char>();
  layout.number = handle->memory.number();
  layout.wait_ctx = handle->memory.wait_ctx(handle->timeout_ms);
  std::memcpy(view, &layout, sizeof layout);
}

}  // namespace

polypath_status polypath_channel_create(polypath_comm* comm,
                                        const polypath_channel_options* options,
                                        const polypath_symmetric* const* windows, int count,
                                        polypath_channel** channel) {
  return guarded([&] {
    require(options != nullptr, "options is null");
    require(channel != nullptr, "channel is null");
    *channel = make_channel(communicator_of(comm), *options, windows, count).release();
  });
}
polypath_status polypath_channel_create_all(polypath_comm* const* comms, int ranks,
                                            const polypath_channel_options* options,
                                            const polypath_symmetric* const* windows, int count,
                                            polypath_channel** channels) {
  return guarded([&] {
    require(options != nullptr, "options is null");
    make_all(comms, ranks, channels, [&](Communicator& communicator, std::size_t i) {
      return make_channel(
          communicator, *options,
          windows == nullptr || count < 1 ? windows : windows + i * static_cast<std::size_t>(count),
          count);
    });
  });
}
polypath_status polypath_channel_destroy(polypath_channel* channel) {
  return guarded([&] { destroy_one(channel); });
}
polypath_status polypath_channel_destroy_all(polypath_channel* const* channels, int ranks) {
  return guarded([&] { destroy_all(channels, ranks); });
}
polypath_status polypath_channel_view(const polypath_channel* channel, void* view, size_t bytes) {
  return guarded([&] { give_view(channel, view, bytes); });
}

polypath_status polypath_active_messages_create(polypath_comm* comm,
                                                const polypath_active_messages_options* options,
                                                polypath_active_messages** messages) {
  return guarded([&] {
    require(options != nullptr, "options is null");
    require(messages != nullptr, "messages is null");
    *messages = make_messages(communicator_of(comm), *options).release();
  });
}
polypath_status polypath_active_messages_create_all(polypath_comm* const* comms, int ranks,
                                                    const polypath_active_messages_options* options,
                                                    polypath_active_messages** messages) {
  return guarded([&] {
    require(options != nullptr, "options is null");
    make_all(comms, ranks, messages, [&](Communicator& communicator, std::size_t) {
      return make_messages(communicator, *options);
    });
  });
}
polypath_status polypath_active_messages_destroy(polypath_active_messages* messages) {
  return guarded([&] { destroy_one(messages); });
}
polypath_status polypath_active_messages_destroy_all(polypath_active_messages* const* messages,
                                                     int ranks) {
  return guarded([&] { destroy_all(messages, ranks); });
}
polypath_status polypath_active_messages_view(const polypath_active_messages* messages, void* view,
                                              size_t bytes) {
  return guarded([&] { give_view(messages, view, bytes); });
}
