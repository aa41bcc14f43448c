// A rank that is killed while others wait for it in a kernel: in a channel, for active messages,
// and for room to free a block. Their waits end, and name the lost rank.
#include <gmock/gmock.h>

#include <functional>
#include <stdexcept>

#include "active_kernels.h"
#include "channel_kernels.h"
#include "comm/comm_handle.hpp"
#include "polypath/messaging/channel.h"
#include "polypath/messaging/pool.h"
#include "process_group.hpp"
#include "queue_rig.hpp"
#include "shared_pool_kernels.h"

namespace polypath::test {
namespace {

using testing::HasSubstr;

/// Memory of the GPU with these words; until the end of the process.
template <typename T>
T* on_gpu(const std::vector<T>& words) {
  CUdeviceptr memory = 0;
  EXPECT_CUDA(cuMemAlloc(&memory, words.size() * sizeof(T)));
  EXPECT_CUDA(
      cuMemcpy(memory, reinterpret_cast<CUdeviceptr>(words.data()), words.size() * sizeof(T)));
  EXPECT_CUDA(cuCtxSynchronize());
  return reinterpret_cast<T*>(memory);
}
std::uint32_t* zeros(std::size_t words) { return on_gpu(std::vector<std::uint32_t>(words)); }

void require_made(polypath_status status) {
  if (status != POLYPATH_SUCCESS) throw std::runtime_error(polypath_last_error());
}

/// What destroys the object that a rank has made.
using Destroy = std::function<polypath_status()>;

Destroy wait_for_a_message(polypath_comm* comm, TestGpu& gpu, bool waits) {
  const polypath_channel_options options{};
  polypath_channel* channel = nullptr;
  require_made(polypath_channel_create(comm, &options, nullptr, 0, &channel));
  ChannelRow row{};
  EXPECT_OK(polypath_channel_view(channel, &row.view, sizeof row.view));
  const Destroy destroy = [=] { return polypath_channel_destroy(channel); };
  if (!waits) return destroy;
  row.members = Members::warp;
  row.stride = row.last = 1;
  row.calls = on_gpu<ChannelOp>(
      {{ChannelCall::blocking_receive, 1, 7, 0, 8, reinterpret_cast<unsigned char*>(zeros(2))}});
  row.requests = reinterpret_cast<device::request*>(
      zeros(kMaxRequests * sizeof(device::request) / sizeof(std::uint32_t)));
  row.results = on_gpu(std::vector<ChannelResult>(1));
  gpu.launch("polypath_test_channel", 1, 32, row);
  return destroy;
}

Destroy wait_for_a_close(polypath_comm* comm, TestGpu& gpu, bool waits) {
  polypath_active_messages_options options{};
  options.argument_bytes = 32;
  polypath_active_messages* messages = nullptr;
  require_made(polypath_active_messages_create(comm, &options, &messages));
  ActiveRow row{};
  EXPECT_OK(polypath_active_messages_view(messages, &row.view, sizeof row.view));
  const Destroy destroy = [=] { return polypath_active_messages_destroy(messages); };
  if (!waits) return destroy;
  row.members = Members::warp;
  row.teams = 1;
  row.executed = row.answered = row.wrong = zeros(1);
  row.done = zeros(1);
  row.results = zeros(1);
  row.counts = reinterpret_cast<std::uint64_t*>(zeros(32));
  gpu.launch("polypath_test_active", 1, 32, row);
  return destroy;
}

Destroy wait_to_free(polypath_comm* comm, TestGpu& gpu, bool waits) {
  polypath_pool_options options{};
  options.bytes = std::size_t{512} << 10;
  options.returns = 128;
  polypath_pool* pool = nullptr;
  require_made(polypath_pool_create_shared(comm, &options, &pool));
  SharedFreeRow row{{}, 1, 20};
  EXPECT_OK(polypath_pool_view(pool, &row.view, sizeof row.view));
  if (waits) gpu.launch("polypath_test_shared_free", 1, 32, row);
  return [=] { return polypath_pool_destroy(pool); };
}

/// Rank 0 waits in a kernel for rank 1, which does nothing.
RANK_PROGRAM(kernel_waits_for_the_killed) {
  polypath_comm comm;
  comm.communicator = self.create();
  TestGpu gpu(comm.communicator->gpu());
  const bool waits = self.rank() == 0;
  Destroy destroy;
  if (RankProcess::ends_at("channel")) destroy = wait_for_a_message(&comm, gpu, waits);
  if (RankProcess::ends_at("active messages")) destroy = wait_for_a_close(&comm, gpu, waits);
  if (RankProcess::ends_at("pool")) destroy = wait_to_free(&comm, gpu, waits);
  for (const char* stage : {"channel", "active messages", "pool"}) self.all_at(stage);
  gpu.synchronize();
  while (!waits && !comm.communicator->aborted()) std::this_thread::yield();
  EXPECT_EQ(destroy(), POLYPATH_COMMUNICATOR_ERROR);
  comm.communicator->check();
}

class KernelWaits : public testing::TestWithParam<const char*> {};
TEST_P(KernelWaits, EndWhenTheRankIsKilled) {
  NEEDS_GPUS(3);
  const auto results = results_of_kill("kernel_waits_for_the_killed", 3, GetParam(), {0, 2});
  for (const std::size_t rank : {0, 2}) EXPECT_THAT(results[rank], HasSubstr("rank 1")) << rank;
}
INSTANTIATE_TEST_SUITE_P(Of, KernelWaits, testing::Values("channel", "active messages", "pool"),
                         [](const auto& stage) { return as_name(stage.param); });

}  // namespace
}  // namespace polypath::test
