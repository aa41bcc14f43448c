// Kernels that send and receive with tags, and check what comes.
#include "channel_bench.h"
#include "items.cuh"
#include "polypath/device/channel.cuh"

namespace messaging_bench {

SIMT_KERNEL(polypath_bench_channel_trips, 32, ChannelTrips trips) {
  const simt::this_warp warp{};
  device::channel channel(warp, trips.view, 0);
  const std::uint32_t other = 1 - trips.view.rank;
  Count count;
  for (std::uint32_t round = 0; round < trips.rounds; ++round) {
    device::status result = device::status::done;
    for (const bool sends : {trips.begins != 0, trips.begins == 0}) {
      if (sends) {
        if (warp.is_leader()) simt::store(trips.place, std::uint64_t{round} + trips.begins);
        warp.sync();
        result = channel.send(warp, other, 7, trips.place, 8);
      } else {
        result = channel.recv(warp, other, 7, trips.place + 1, 8);
        if (warp.is_leader()) {
          const std::uint64_t expected = std::uint64_t{round} + 1 - trips.begins;
          if (simt::load(trips.place + 1) == expected)
            count.add(make_item<3>(round));
          else
            count.wrong();
        }
      }
      if (result != device::status::done) break;
    }
    if (result != device::status::done) break;
  }
  channel.leave(warp);
  count.write(trips.tally);
}

SIMT_KERNEL(polypath_bench_channel_stream, 512, ChannelStream run) {
  const simt::this_block block{};
  device::channel channel(block, run.view, simt::block_index());
  const std::uint32_t other = 1 - run.view.rank;
  const std::uint64_t words = run.bytes / 16;
  const std::uint64_t first = words * simt::block_index() / simt::grid_size() * 16;
  const std::uint64_t end = words * (simt::block_index() + 1) / simt::grid_size() * 16;
  device::status result = device::status::done;
  for (std::uint32_t round = 0; round < run.rounds && result == device::status::done; ++round) {
    if (run.sends != 0)
      result = channel.send(block, other, round, run.data + first, end - first);
    else
      result = channel.recv(block, other, round, run.data + first, end - first);
  }
  channel.leave(block);
  if (block.is_leader() && result != device::status::done) simt::red_add_relaxed(run.failed, 1U);
}

/// The next request is written by one thread, and loaded by all.
SIMT_DEVICE void keep_request(device::request* at, const device::request& source) {
  if (simt::rank_in_warp() != 0) return;
  simt::store_relaxed(&at->slot, source.slot);
  simt::store_relaxed(&at->generation, source.generation);
}

SIMT_KERNEL(polypath_bench_channel_steps, 32, ChannelSteps run) {
  const simt::this_warp warp{};
  const unsigned context = simt::block_index();
  device::channel channel(warp, run.view, context);
  const std::uint32_t other = 1 - run.view.rank;
  std::uint64_t* const sent = run.sent + std::uint64_t{context} * run.messages * run.message_words;
  std::uint64_t* const received =
      run.received + std::uint64_t{context} * run.messages * run.message_words;
  device::request* const requests = run.requests + std::uint64_t{context} * run.messages;
  const std::uint64_t bytes = run.message_words * std::uint64_t{8};
  Count count;
  device::status result = device::status::done;
  for (std::uint32_t step = 0; step < run.steps && result == device::status::done; ++step) {
    for (std::uint32_t i = 0; i < run.messages && result == device::status::done; ++i) {
      const std::uint32_t tag = (i * 13 + step) % run.messages;
      device::request begun;
      result = channel.irecv(warp, other, tag, received + tag * run.message_words, bytes, begun);
      keep_request(requests + i, begun);
    }
    for (std::uint32_t i = simt::rank_in_warp(); i < run.messages; i += simt::kWarp)
      simt::store(sent + i * run.message_words, std::uint64_t{step} * run.messages + i);
    warp.sync();
    for (std::uint32_t i = 0; i < run.messages && result == device::status::done; ++i)
      result = channel.send(warp, other, i, sent + i * run.message_words, bytes);
    for (std::uint32_t i = 0; i < run.messages && result == device::status::done; ++i)
      result = channel.wait(warp, {simt::load_relaxed(&requests[i].slot),
                                   simt::load_relaxed(&requests[i].generation)});
    if (result != device::status::done) break;
    for (std::uint32_t i = simt::rank_in_warp(); i < run.messages; i += simt::kWarp) {
      const std::uint64_t id = std::uint64_t{step} * run.messages + i;
      if (simt::load(received + i * run.message_words) == id)
        count.add(make_item<3>(id));
      else
        count.wrong();
    }
    warp.sync();
  }
  channel.leave(warp);
  count.write(run.tally);
}

}  // namespace messaging_bench
