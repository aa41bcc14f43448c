#include "channel_ends.hpp"

#include "polypath/comm.hpp"

namespace messaging_bench {
namespace {

using polypath::detail::check;
using polypath::device::active_messages_view;
using polypath::device::channel_view;

std::vector<polypath_comm*> comms_of(Bench& bench) {
  std::vector<polypath_comm*> comms;
  for (int rank = 0; rank < bench.gpus(); ++rank) comms.push_back(bench.comm(rank));
  return comms;
}

std::uint64_t address(const void* at) { return reinterpret_cast<std::uint64_t>(at); }

}  // namespace

ChannelEnds::ChannelEnds(Bench& bench, const polypath_channel_options& options,
                         std::size_t window_bytes)
    : bench_(bench), comms_(comms_of(bench)) {
  const int ranks = bench.gpus();
  const auto count = static_cast<std::size_t>(ranks);
  memories_.resize(count);
  channels_.resize(count);
  check(polypath_comm_alloc_all(comms_.data(), ranks, window_bytes, memories_.data()));
  check(polypath_channel_create_all(comms_.data(), ranks, &options, memories_.data(), 1,
                                    channels_.data()));
  for (std::size_t rank = 0; rank < count; ++rank) {
    check(polypath_channel_view(channels_[rank], &views[rank], sizeof(channel_view)));
    windows[rank] = static_cast<unsigned char*>(
        polypath_symmetric_address(memories_[rank], static_cast<int>(rank)));
  }
  if (ranks > 1) return;
  // The same shape for two, in memory of one GPU.
  Gpu& gpu = bench.gpu(0);
  channel_view layout = views[0];
  layout.ranks = 2;
  std::array<unsigned char*, 2> parts{};
  for (unsigned end = 0; end < 2; ++end) {
    parts[end] = static_cast<unsigned char*>(gpu.alloc(layout.bytes()));
    windows[end] = static_cast<unsigned char*>(gpu.alloc(window_bytes));
  }
  const std::vector<std::uint64_t> table = {address(parts[0]),   address(parts[1]),
                                            layout.bytes(),      address(windows[0]),
                                            address(windows[1]), window_bytes};
  for (unsigned end = 0; end < 2; ++end) {
    gpu.write(parts[end], table.data(), table.size() * sizeof table[0]);
    layout.local = parts[end];
    layout.rank = end;
    views[end] = layout;
  }
}

ChannelEnds::~ChannelEnds() {
  const int ranks = bench_.gpus();
  polypath_channel_destroy_all(channels_.data(), ranks);
  polypath_comm_free_all(comms_.data(), ranks, memories_.data());
}

ActiveEnds::ActiveEnds(Bench& bench, const polypath_active_messages_options& options)
    : bench_(bench), comms_(comms_of(bench)) {
  const int ranks = bench.gpus();
  messages_.resize(static_cast<std::size_t>(ranks));
  check(polypath_active_messages_create_all(comms_.data(), ranks, &options, messages_.data()));
  for (std::size_t rank = 0; rank < messages_.size(); ++rank)
    check(
        polypath_active_messages_view(messages_[rank], &views[rank], sizeof(active_messages_view)));
  if (ranks > 1) return;
  Gpu& gpu = bench.gpu(0);
  active_messages_view layout = views[0];
  layout.ranks = 2;
  std::array<unsigned char*, 2> parts{};
  for (unsigned end = 0; end < 2; ++end)
    parts[end] = static_cast<unsigned char*>(gpu.alloc(layout.bytes()));
  for (unsigned end = 0; end < 2; ++end) {
    layout.local = parts[end];
    layout.rank = end;
    gpu.write(parts[end], parts.data(), sizeof parts);
    for (const active_messages_view::kind kind :
         {active_messages_view::request, active_messages_view::reply})
      for (std::uint32_t peer = 0; peer < 2; ++peer)
        for (std::uint32_t shard = 0; shard < layout.shards(); ++shard)
          gpu.set(
              parts[end] + layout.ring_offset(kind, peer, shard) + active_messages_view::kClosed,
              0xFF, 8);
    views[end] = layout;
  }
}

ActiveEnds::~ActiveEnds() { polypath_active_messages_destroy_all(messages_.data(), bench_.gpus()); }

}  // namespace messaging_bench
