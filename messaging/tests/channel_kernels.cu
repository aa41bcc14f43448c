// Kernels that make calls of a channel.
#include "channel_kernels.h"
#include "polypath/device/channel.cuh"
#include "simt/platform.cuh"

namespace polypath::test {

template <typename Group>
SIMT_DEVICE void write_result(const Group& group, ChannelResult* at, device::status result,
                              const device::received& got) {
  if (!group.is_leader()) return;
  simt::store(&at->tag, got.tag);
  simt::store(&at->source, got.source);
  simt::store(&at->bytes, static_cast<std::uint32_t>(got.bytes));
  simt::store(&at->status, static_cast<std::uint32_t>(result));
}

/// Loads what has come, as a program would.
template <typename Group>
SIMT_DEVICE void sum_up(const Group& group, ChannelResult* at, const unsigned char* data,
                        std::uint64_t bytes) {
  std::uint32_t sum = 0;
  for (std::uint64_t i = group.rank(); i < bytes; i += group.size())
    sum += (simt::load(data + i) + 1U) * (static_cast<std::uint32_t>(i) * 2 + kSumFactor);
  simt::red_add_relaxed(&at->sum, sum);
}

template <typename Group>
SIMT_DEVICE_NOINLINE void run_channel(const ChannelRow& row) {
  const Group group{};
  const unsigned context = simt::block_index();
  device::channel channel(group, row.view, context);
  device::request requests[kMaxRequests];
  device::request* const kept = row.requests + context * kMaxRequests;
  for (unsigned i = 0; i < kMaxRequests; ++i) {
    requests[i].slot = simt::load_relaxed(&kept[i].slot);
    requests[i].generation = simt::load_relaxed(&kept[i].generation);
  }
  group.sync();
  for (unsigned i = row.first; i < row.last; ++i) {
    const ChannelOp* const at = row.calls + context * row.stride + i;
    const auto call = static_cast<ChannelCall>(
        simt::load_constant(reinterpret_cast<const std::uint32_t*>(&at->call)));
    const std::uint32_t peer = simt::load_constant(&at->peer);
    const std::uint32_t tag = simt::load_constant(&at->tag);
    const std::uint32_t number = simt::load_constant(&at->request);
    const std::uint64_t bytes = simt::load_constant(&at->bytes);
    unsigned char* const data = reinterpret_cast<unsigned char*>(
        simt::load_constant(reinterpret_cast<const std::uint64_t*>(&at->data)));
    ChannelResult* const result = row.results + context * row.stride + number;
    device::received got{};
    device::status answer = device::status::done;
    device::request& request = requests[number % kMaxRequests];
    if (call == ChannelCall::send) {
      answer = channel.isend(group, peer, tag, data, bytes, request);
      if (answer != device::status::done) write_result(group, result, answer, got);
    } else if (call == ChannelCall::receive) {
      if (group.rank() < bytes) (void)simt::load(data + group.rank());  // it may be kept
      answer = channel.irecv(group, peer, tag, data, bytes, request);
      if (answer != device::status::done) write_result(group, result, answer, got);
    } else if (call == ChannelCall::wait) {
      if (group.rank() < bytes) (void)simt::load(data + group.rank());
      answer = channel.wait(group, request, &got);
      if (data != nullptr && answer <= device::status::truncated)
        sum_up(group, result, data, got.bytes);
      write_result(group, result, answer, got);
    } else if (call == ChannelCall::test) {
      answer = channel.test(group, request, &got);
      if (answer != device::status::in_progress) write_result(group, result, answer, got);
    } else if (call == ChannelCall::poll) {
      answer = device::status::in_progress;
      for (unsigned turn = 0; turn < 1000 && answer == device::status::in_progress; ++turn)
        answer = channel.test(group, request, &got);
      write_result(group, result, answer, got);
    } else if (call == ChannelCall::blocking_receive) {
      if (group.rank() < bytes) (void)simt::load(data + group.rank());  // it may be kept
      answer = channel.recv(group, peer, tag, data, bytes, &got);
      if (answer <= device::status::truncated) sum_up(group, result, data, got.bytes);
      write_result(group, result, answer, got);
    } else {
      write_result(group, result, channel.send(group, peer, tag, data, bytes), got);
    }
    if (answer == device::status::aborted) break;
  }
  channel.leave(group);
  // All of the group know that it is another one's now.
  if (channel.progress(group) == device::status::done)
    write_result(group, row.results + context * row.stride, device::status::bad_request, {});
  for (unsigned i = 0; group.is_leader() && i < kMaxRequests; ++i) {
    simt::store_relaxed(&kept[i].slot, requests[i].slot);
    simt::store_relaxed(&kept[i].generation, requests[i].generation);
  }
}

SIMT_KERNEL(polypath_test_channel, 256, ChannelRow row) {
  if (row.members == Members::block)
    run_channel<simt::this_block>(row);
  else if (simt::warp_index() == 0)
    run_channel<simt::this_warp>(row);
}

}  // namespace polypath::test
