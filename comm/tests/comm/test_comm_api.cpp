// The C API of communicators and its thin C++, as a program links them.
#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "polypath/comm.hpp"
#include "polypath/device/wait_context.hpp"
#include "polypath_sim.h"

namespace {

using testing::HasSubstr;

constexpr int kRanks = 4;
constexpr std::size_t kBytes = 100'003;

std::vector<std::uint8_t> pattern(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<std::uint8_t> bytes(kBytes);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

CUdeviceptr device(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

/// A stream of a GPU's primary context, which is current while it lives.
class Rank {
 public:
  explicit Rank(int gpu) : gpu_(gpu) {
    CUcontext context = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&context, gpu));
    EXPECT_EQ(CUDA_SUCCESS, cuCtxPushCurrent(context));
    EXPECT_EQ(CUDA_SUCCESS, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  ~Rank() {
    cuStreamDestroy(stream);
    CUcontext popped = nullptr;
    cuCtxPopCurrent(&popped);
    cuDevicePrimaryCtxRelease(gpu_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  CUstream stream = nullptr;

 private:
  int gpu_;
};

class CommApi : public testing::Test {
 protected:
  void SetUp() override {
    // ms: no wait here may end by it, and a machine may be busy.
    const polypath_setting patient{"comm_timeout_ms", "300000"};
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_context_create(&patient, 1, &context_))
        << polypath_last_error();
  }
  void TearDown() override { polypath_context_destroy(context_); }

  void create_all() {
    comms_.resize(kRanks);
    ASSERT_EQ(POLYPATH_SUCCESS,
              polypath_comm_create_all(context_, nullptr, kRanks, nullptr, comms_.data()))
        << polypath_last_error();
  }
  void destroy_all() {
    for (polypath_comm* comm : comms_)
      EXPECT_EQ(POLYPATH_SUCCESS, polypath_comm_destroy(comm)) << polypath_last_error();
  }

  polypath_context* context_ = nullptr;
  std::vector<polypath_comm*> comms_;
};

#define EXPECT_OK(call) EXPECT_EQ(POLYPATH_SUCCESS, call) << polypath_last_error()
#define ASSERT_OK(call) ASSERT_EQ(POLYPATH_SUCCESS, call) << polypath_last_error()
#define EXPECT_REFUSED(text, call)                       \
  do {                                                   \
    EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, call);          \
    EXPECT_THAT(polypath_last_error(), HasSubstr(text)); \
  } while (false)

/// One thread for all ranks: what is asynchronous needs no more.
TEST_F(CommApi, SingleThread_DrivesAllRanks) {
  create_all();
  std::vector<polypath_symmetric*> inbox(kRanks);
  std::vector<polypath_symmetric*> words(kRanks);
  EXPECT_OK(polypath_comm_alloc_all(comms_.data(), kRanks, kBytes, inbox.data()));
  EXPECT_OK(polypath_comm_alloc_all(comms_.data(), kRanks, 16, words.data()));
  std::vector<std::vector<std::uint8_t>> out;
  std::vector<std::vector<std::uint8_t>> in(kRanks, std::vector<std::uint8_t>(kBytes, 0xEE));
  for (int rank = 0; rank < kRanks; ++rank) out.push_back(pattern(rank));
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<Rank>(rank));
    const auto at = static_cast<std::size_t>(rank);
    CUstream stream = ranks.back()->stream;
    EXPECT_EQ(rank, polypath_comm_rank(comms_[at]));
    EXPECT_EQ(kRanks, polypath_comm_size(comms_[at]));
    EXPECT_EQ(3, polypath_comm_gpu(comms_[at], 3));
    EXPECT_EQ(kBytes, polypath_symmetric_bytes(inbox[at]));
    EXPECT_EQ(polypath_symmetric_address(inbox[at], rank),
              polypath_symmetric_address(inbox[(at + 1) % kRanks], rank));
    const int next = (rank + 1) % kRanks;
    const polypath_signal arrived{words[at], 8, 1};
    EXPECT_OK(polypath_comm_put_signal(comms_[at], next, inbox[at], 0, out[at].data(), kBytes,
                                       &arrived, stream));
    EXPECT_OK(polypath_comm_wait_signal(comms_[at], &arrived, stream));
    EXPECT_OK(polypath_comm_barrier(comms_[at], stream));
  }
  for (std::size_t at = 0; at < kRanks; ++at) {
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(ranks[at]->stream));
    EXPECT_EQ(
        CUDA_SUCCESS,
        cuMemcpy(device(in[at].data()),
                 device(polypath_symmetric_address(inbox[at], static_cast<int>(at))), kBytes));
    EXPECT_TRUE(in[at] == out[(at + kRanks - 1) % kRanks]) << "rank " << at;
    EXPECT_OK(polypath_comm_check(comms_[at]));
  }
  EXPECT_OK(polypath_comm_free_all(comms_.data(), kRanks, inbox.data()));
  EXPECT_EQ(nullptr, polypath_symmetric_address(words[0], kRanks));
  EXPECT_OK(polypath_comm_free_all(comms_.data(), kRanks, words.data()));
  while (!ranks.empty()) ranks.pop_back();
  destroy_all();
}

/// Fills device memory: random, the same for the same seed.
std::vector<std::uint8_t> fill(CUdeviceptr to, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t at = 0; at + 8 <= count; at += 8) {
    const std::uint64_t word = random();
    std::memcpy(&bytes[at], &word, 8);
  }
  EXPECT_EQ(CUDA_SUCCESS, cuMemcpy(to, device(bytes.data()), count));
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(nullptr));  // not pinned: it may be on its way
  return bytes;
}

TEST_F(CommApi, PutsOfAGroupGoToAllRanksAtOnce) {
  create_all();
  constexpr std::size_t kLarge = 32 << 20;
  std::vector<polypath_symmetric*> inbox(kRanks);
  std::vector<polypath_symmetric*> words(kRanks);
  EXPECT_OK(polypath_comm_alloc_all(comms_.data(), kRanks, 2 * kLarge, inbox.data()));
  EXPECT_OK(polypath_comm_alloc_all(comms_.data(), kRanks, 16, words.data()));
  const Rank rank(0);
  CUdeviceptr source = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&source, 2 * kLarge));
  const auto sent = fill(source, 2 * kLarge, 7);
  const polypath_signal first{words[0], 0, 70};
  const polypath_signal second{words[0], 8, 71};
  const auto from = reinterpret_cast<const void*>(source);
  const auto past = reinterpret_cast<const void*>(source + kLarge);
  const auto took = [&](std::span<const polypath_put> puts) {
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(rank.stream));
    const double before = polypath_sim_clock_us();
    EXPECT_OK(polypath_comm_put_group(comms_[0], puts.data(), puts.size(), rank.stream));
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(rank.stream));
    return polypath_sim_clock_us() - before;
  };
  const std::vector<polypath_put> puts{{1, inbox[0], 0, from, kLarge, &first},
                                       {2, inbox[0], 0, past, kLarge, &first},
                                       {3, inbox[0], 0, from, kLarge, nullptr},
                                       {1, inbox[0], kLarge, past, kLarge, &second},
                                       {3, inbox[0], kLarge, nullptr, 0, &second}};
  took(std::span(puts).first(3));  // makes streams
  const double together = took(std::span(puts).first(3));
  double in_turn = 0;
  for (std::size_t i = 0; i < 3; ++i) in_turn += took(std::span(puts).subspan(i, 1));
  EXPECT_LT(together, 0.6 * in_turn);
  took(puts);
  std::vector<std::uint8_t> got(2 * kLarge);
  std::vector<std::uint64_t> values(2);
  const auto read = [&](int peer) {
    cuMemcpy(device(got.data()), device(polypath_symmetric_address(inbox[0], peer)), got.size());
    cuMemcpy(device(values.data()), device(polypath_symmetric_address(words[0], peer)), 16);
  };
  read(1);
  EXPECT_TRUE(got == sent);
  EXPECT_EQ((std::vector<std::uint64_t>{70, 71}), values);
  read(2);
  EXPECT_EQ(0, std::memcmp(got.data(), sent.data() + kLarge, kLarge));
  EXPECT_EQ((std::vector<std::uint64_t>{70, 0}), values);
  read(3);
  EXPECT_EQ(0, std::memcmp(got.data(), sent.data(), kLarge));
  EXPECT_EQ((std::vector<std::uint64_t>{0, 71}), values);

  const polypath_put wrong[]{puts[0], {kRanks, inbox[0], 0, from, 8, nullptr}};
  EXPECT_REFUSED("put 1: to is 4", polypath_comm_put_group(comms_[0], wrong, 2, rank.stream));
  EXPECT_REFUSED("puts is null", polypath_comm_put_group(comms_[0], nullptr, 1, rank.stream));
  EXPECT_OK(polypath_comm_put_group(comms_[0], nullptr, 0, rank.stream));
  cuMemFree(source);
  destroy_all();
}

/// A put group whose stream is held does not hold that of another stream.
TEST_F(CommApi, WaitingPutGroup_HoldsNoOtherStream) {
  create_all();
  constexpr std::size_t kLarge = 4 << 20;
  std::vector<polypath_symmetric*> inbox(kRanks);
  EXPECT_OK(polypath_comm_alloc_all(comms_.data(), kRanks, kLarge + 8, inbox.data()));
  const Rank rank(0);
  CUstream other = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUdeviceptr source = 0;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&source, kLarge));
  const auto from = reinterpret_cast<const void*>(source);
  const polypath_put puts[]{{1, inbox[0], 0, from, kLarge, nullptr},
                            {2, inbox[0], 0, from, kLarge, nullptr}};
  const polypath_signal release{inbox[0], kLarge, 1};
  EXPECT_OK(polypath_comm_wait_signal(comms_[0], &release, rank.stream));
  EXPECT_OK(polypath_comm_put_group(comms_[0], puts, 2, rank.stream));
  EXPECT_OK(polypath_comm_put_group(comms_[0], puts, 2, other));
  EXPECT_OK(polypath_comm_signal(comms_[0], 0, &release, other));
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(other));
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(rank.stream));
  EXPECT_OK(polypath_comm_check(comms_[0]));
  cuStreamDestroy(other);
  cuMemFree(source);
  destroy_all();
}

TEST(CommMeeting, ThreadsAndOneProcess) {
  std::vector<polypath_bootstrap*> meetings(3);
  EXPECT_OK(polypath_bootstrap_threads(3, 60'000, meetings.data()));
  {
    std::vector<std::jthread> threads;
    for (polypath_bootstrap* const meeting : meetings)
      threads.emplace_back([meeting] {
        const int local = 10 + polypath_bootstrap_rank(meeting);
        EXPECT_EQ(3, polypath_bootstrap_size(meeting));
        std::vector<int> all(3);
        EXPECT_EQ(0, polypath_bootstrap_all_gather(&local, all.data(), sizeof local, meeting));
        EXPECT_EQ((std::vector<int>{10, 11, 12}), all);
      });
  }
  for (polypath_bootstrap* const meeting : meetings) polypath_bootstrap_destroy(meeting);

  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  polypath_bootstrap* alone = nullptr;
  EXPECT_OK(polypath_bootstrap_from_environment(0, 1000, &alone));
  EXPECT_EQ(1, polypath_bootstrap_size(alone));
  polypath_bootstrap_destroy(alone);
  polypath_bootstrap_destroy(nullptr);
  EXPECT_EQ(-1, polypath_bootstrap_rank(nullptr));
  EXPECT_EQ(-1, polypath_bootstrap_size(nullptr));
  EXPECT_NE(0, polypath_bootstrap_all_gather(nullptr, nullptr, 0, nullptr));
  setenv("RANK", "0", 1);
  EXPECT_REFUSED("WORLD_SIZE is not set", polypath_bootstrap_from_environment(0, 1000, &alone));
  unsetenv("RANK");
  EXPECT_REFUSED("timeout_ms is 0", polypath_bootstrap_from_environment(0, 0, &alone));
  EXPECT_REFUSED("size is not positive", polypath_bootstrap_threads(0, 1000, meetings.data()));
  EXPECT_REFUSED("meetings is null", polypath_bootstrap_threads(1, 1000, nullptr));
  // One that does not come ends the others' wait.
  EXPECT_OK(polypath_bootstrap_threads(2, 50, meetings.data()));
  const int local = 1;
  std::vector<int> all(2);
  EXPECT_NE(0, polypath_bootstrap_all_gather(&local, all.data(), sizeof local, meetings[0]));
  EXPECT_THAT(polypath_last_error(), HasSubstr("rank 1 did not come within 50 ms"));
  polypath_bootstrap_destroy(meetings[0]);
  polypath_bootstrap_destroy(meetings[1]);
}

TEST_F(CommApi, UnfreedMemory_IsFreedWithCommunicator) {
  const std::uint64_t before = polypath_sim_live_allocations();
  create_all();
  std::vector<polypath_symmetric*> freed(kRanks);
  std::vector<polypath_symmetric*> left(kRanks);
  EXPECT_OK(polypath_comm_alloc_all(comms_.data(), kRanks, 16, freed.data()));
  EXPECT_OK(polypath_comm_alloc_all(comms_.data(), kRanks, 16, left.data()));
  EXPECT_REFUSED("memory is not of this communicator", polypath_comm_free(comms_[1], left[0]));
  EXPECT_OK(polypath_comm_free_all(comms_.data(), kRanks, freed.data()));
  EXPECT_REFUSED("or was freed", polypath_comm_free(comms_[0], freed[0]));
  EXPECT_EQ(16U, polypath_symmetric_bytes(left[0]));
  destroy_all();  // and the handles: a sanitizer looks for them
  // What is not of the rank that left last is freed in the background, and so may be what an
  // earlier test has left.
  while (polypath_sim_live_allocations() > before) std::this_thread::yield();
}

TEST_F(CommApi, ExchangeOfTheCaller) {
  // Ranks of one, whose exchange is a copy; and one that fails.
  int calls = 0;
  const polypath_all_gather_fn copy = [](const void* local, void* all, size_t bytes, void* user) {
    ++*static_cast<int*>(user);
    std::memcpy(all, local, bytes);
    return 0;
  };
  polypath_comm* comm = nullptr;
  EXPECT_OK(polypath_comm_create(context_, 0, 1, 2, copy, &calls, nullptr, &comm));
  EXPECT_GT(calls, 0);
  EXPECT_EQ(2, polypath_comm_gpu(comm, 0));
  polypath_comm* part = nullptr;
  EXPECT_OK(polypath_comm_split(comm, -1, 0, &part));
  EXPECT_EQ(nullptr, part);
  EXPECT_OK(polypath_comm_split(comm, 3, 0, &part));
  EXPECT_EQ(1, polypath_comm_size(part));
  EXPECT_OK(polypath_comm_destroy(part));
  EXPECT_OK(polypath_comm_destroy(comm));

  const polypath_all_gather_fn fails = [](const void*, void*, size_t, void*) { return 1; };
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR,
            polypath_comm_create(context_, 0, 1, 0, fails, nullptr, nullptr, &comm));
  EXPECT_THAT(polypath_last_error(), HasSubstr("the exchange of the caller failed"));
}

TEST_F(CommApi, AfterAnAbortAllSaysSo) {
  create_all();
  EXPECT_OK(polypath_comm_abort(comms_[2], nullptr));
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_comm_check(comms_[0]));
  EXPECT_THAT(polypath_last_error(), HasSubstr("rank 2 called abort"));
  EXPECT_STREQ("POLYPATH_COMMUNICATOR_ERROR", polypath_status_name(POLYPATH_COMMUNICATOR_ERROR));
  polypath_symmetric* memory = nullptr;
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_comm_alloc(comms_[1], 8, &memory));
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_comm_barrier(comms_[3], nullptr));
  const std::uint8_t local = 0;
  std::vector<std::uint8_t> all(kRanks);
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR,
            polypath_comm_host_all_gather(comms_[3], &local, all.data(), 1));
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_comm_prepare(comms_[1]));
  destroy_all();
}

TEST_F(CommApi, CollectivesAfterAnAbortSaySo) {
  create_all();
  EXPECT_OK(polypath_comm_prepare_all(comms_.data(), kRanks));
  {
    const Rank rank(0);
    CUdeviceptr memory = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory, 4096));
    auto* const buffer = reinterpret_cast<void*>(memory);
    EXPECT_OK(polypath_comm_abort(comms_[2], "the test wants it"));
    EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR,
              polypath_all_reduce(comms_[0], buffer, buffer, 1024, POLYPATH_FLOAT32, POLYPATH_SUM,
                                  rank.stream));
    EXPECT_THAT(polypath_last_error(), HasSubstr("the test wants it"));
    EXPECT_EQ(CUDA_SUCCESS, cuMemFree(memory));
  }
  destroy_all();
}

TEST_F(CommApi, ProgramKernelError_Aborts) {
  using polypath::device::wait_context;
  using polypath::device::wait_error;
  const auto says = [&](std::uint32_t reason, const char* text) {
    create_all();
    wait_context wait_ctx{};
    EXPECT_OK(polypath_comm_wait_context(comms_[1], &wait_ctx, sizeof wait_ctx));
    EXPECT_EQ(wait_error::kProgram, wait_ctx.kernel);
    EXPECT_EQ(0U, *wait_ctx.abort_flag);
    EXPECT_GT(wait_ctx.time_limit_ns, 1'000'000U);
    // As its kernel would.
    wait_error& status = *wait_ctx.status;
    status.kernel = wait_ctx.kernel;
    status.reason = reason;
    status.block = 6;
    status.waited_for_rank = 2;
    status.expected = 4;
    status.seen = 9;
    status.offset = 0x40;
    status.bytes = 24;
    std::atomic_ref(status.given_up).store(1, std::memory_order_release);
    EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_comm_check(comms_[1]));
    EXPECT_THAT(polypath_last_error(), HasSubstr("rank 1: block 6 of a kernel of the program"));
    EXPECT_THAT(polypath_last_error(), HasSubstr(text));
    EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_comm_check(comms_[3]));
    EXPECT_NE(0U, std::atomic_ref(const_cast<std::uint32_t&>(*wait_ctx.abort_flag)).load());
    destroy_all();
  };
  says(wait_error::time_limit,
       "waited for rank 2 past the time limit, the signal at 0x40 to be 4: it is 9");
  says(wait_error::bad_memory, "24 bytes at 0x40 are not from Memory::Alloc");
  says(wait_error::bad_rank, "there is no rank 9 of 4");
}

TEST_F(CommApi, DestroyingWithWorkInFlightIsRefused) {
  create_all();
  {
    const Rank rank(0);
    EXPECT_OK(polypath_comm_barrier(comms_[0], rank.stream));
    EXPECT_REFUSED("a stream of this rank still waits", polypath_comm_destroy(comms_[0]));
    EXPECT_OK(polypath_comm_abort(comms_[0], "the test is over"));
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(rank.stream));
  }
  destroy_all();
}

/// Its stream is held for longer than the time limit: the call begins when the communicator has
/// gone.
TEST_F(CommApi, DestroyingWithAHeldCall_KeepsItsMemory) {
  polypath_comm_options options{};
  options.timeout_ms = 4000;
  std::vector<polypath_comm*> comms(2);
  ASSERT_OK(polypath_comm_create_all(context_, nullptr, 2, &options, comms.data()));
  ASSERT_OK(polypath_comm_prepare_all(comms.data(), 2));
  const Rank rank(0);
  CUdeviceptr memory = 0;
  void* word = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory, 4096));
  ASSERT_EQ(CUDA_SUCCESS, cuMemHostAlloc(&word, 4, CU_MEMHOSTALLOC_PORTABLE));
  std::atomic_ref released(*static_cast<std::uint32_t*>(word));
  released = 0;
  ASSERT_EQ(CUDA_SUCCESS,
            cuStreamWaitValue32(rank.stream, device(word), 1, CU_STREAM_WAIT_VALUE_EQ));
  auto* const buffer = reinterpret_cast<void*>(memory);
  EXPECT_OK(polypath_all_reduce(comms[0], buffer, buffer, 1024, POLYPATH_FLOAT32, POLYPATH_SUM,
                                rank.stream));
  EXPECT_OK(polypath_comm_abort(comms[0], "the test is over"));
  EXPECT_OK(polypath_comm_destroy(comms[0]));
  EXPECT_OK(polypath_comm_destroy(comms[1]));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(rank.stream));
  released = 1;
  EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(rank.stream));
  EXPECT_EQ(CUDA_SUCCESS, cuMemFree(memory));
  EXPECT_EQ(CUDA_SUCCESS, cuMemFreeHost(word));
}

TEST_F(CommApi, DestroyDuringCollective_IsRefused) {
  create_all();
  EXPECT_OK(polypath_comm_prepare_all(comms_.data(), kRanks));
  {
    const Rank rank(0);
    CUdeviceptr memory = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory, 4096));
    auto* const buffer = reinterpret_cast<void*>(memory);
    EXPECT_OK(polypath_all_reduce(comms_[0], buffer, buffer, 1024, POLYPATH_FLOAT32, POLYPATH_SUM,
                                  rank.stream));
    EXPECT_REFUSED("a collective of this rank is still under way",
                   polypath_comm_destroy(comms_[0]));
    EXPECT_OK(polypath_comm_abort(comms_[0], "the test is over"));
    // Its kernel ends before the memory that it looks at.
    EXPECT_OK(polypath_comm_destroy(comms_[0]));
    EXPECT_EQ(CUDA_SUCCESS, cuStreamQuery(rank.stream));
    EXPECT_EQ(CUDA_SUCCESS, cuMemFree(memory));
    comms_[0] = nullptr;
  }
  destroy_all();
}

TEST_F(CommApi, WrongTypeOrUnpreparedCapture_IsRefused) {
  create_all();
  {
    const Rank rank(1);
    CUdeviceptr memory = 0;
    EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&memory, 4096));
    auto* const buffer = reinterpret_cast<void*>(memory);
    const auto call = [&](int type, int op) {
      return polypath_all_reduce(comms_[1], buffer, buffer, 1024,
                                 static_cast<polypath_data_type>(type),
                                 static_cast<polypath_reduce_op>(op), rank.stream);
    };
    EXPECT_REFUSED("type is none", call(10, POLYPATH_SUM));
    EXPECT_REFUSED("op is none", call(POLYPATH_INT8, 5));
    EXPECT_REFUSED("counts is null", polypath_all_gatherv(comms_[1], buffer, buffer, nullptr,
                                                          POLYPATH_FLOAT32, rank.stream));
    const std::vector<std::size_t> counts(comms_.size(), 1);
    EXPECT_REFUSED("op is none", polypath_reduce_scatterv(
                                     comms_[1], buffer, buffer, counts.data(), POLYPATH_FLOAT32,
                                     static_cast<polypath_reduce_op>(5), rank.stream));
    EXPECT_EQ(CUDA_SUCCESS, cuStreamBeginCapture(rank.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_REFUSED("rank 1: stream is in capture", call(POLYPATH_FLOAT32, POLYPATH_SUM));
    CUgraph graph = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, cuStreamEndCapture(rank.stream, &graph));
    std::size_t nodes = 1;
    EXPECT_EQ(CUDA_SUCCESS, cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(0U, nodes);
    EXPECT_EQ(CUDA_SUCCESS, cuGraphDestroy(graph));
    EXPECT_EQ(CUDA_SUCCESS, cuMemFree(memory));
  }
  destroy_all();
}

/// It would wait for the others, were it a call of all.
TEST_F(CommApi, ReportBeforeFirstCollective_IsLocal) {
  create_all();
  char* report = nullptr;
  EXPECT_OK(polypath_comm_report(comms_[1], &report));
  if (report != nullptr) {
    EXPECT_THAT(report, testing::AllOf(HasSubstr("\"cells\":0"), HasSubstr("\"scratch_bytes\":0")));
    polypath_free_string(report);
  }
  EXPECT_OK(polypath_comm_check(comms_[1]));
  EXPECT_REFUSED("", polypath_comm_report(nullptr, &report));
  destroy_all();
}

TEST_F(CommApi, NullAndWrongArgumentsAreNamed) {
  EXPECT_OK(polypath_comm_destroy(nullptr));
  EXPECT_EQ(-1, polypath_comm_rank(nullptr));
  EXPECT_EQ(-1, polypath_comm_size(nullptr));
  EXPECT_EQ(-1, polypath_comm_gpu(nullptr, 0));
  EXPECT_EQ(nullptr, polypath_symmetric_address(nullptr, 0));
  EXPECT_EQ(0U, polypath_symmetric_bytes(nullptr));
  EXPECT_REFUSED("comm is null", polypath_comm_check(nullptr));
  EXPECT_REFUSED("comm is null", polypath_comm_abort(nullptr, nullptr));
  EXPECT_REFUSED("comms is null", polypath_comm_create_all(context_, nullptr, 1, nullptr, nullptr));
  std::vector<polypath_comm*> none(1);
  EXPECT_REFUSED("size is not positive",
                 polypath_comm_create_all(context_, nullptr, 0, nullptr, none.data()));
  EXPECT_REFUSED("context is null",
                 polypath_comm_create_all(nullptr, nullptr, 1, nullptr, none.data()));
  EXPECT_REFUSED("exchange is null",
                 polypath_comm_create(context_, 0, 1, 0, nullptr, nullptr, nullptr, none.data()));
  polypath_comm_options options{};
  options.reserved[1] = 1;
  EXPECT_REFUSED("options->reserved is not 0",
                 polypath_comm_create_all(context_, nullptr, 1, &options, none.data()));
  options = {};
  options.sum_order = POLYPATH_SUM_ORDER_TREE + 1;
  EXPECT_REFUSED("options->sum_order is none",
                 polypath_comm_create_all(context_, nullptr, 1, &options, none.data()));
  options.sum_order = POLYPATH_SUM_ORDER_TREE;
  EXPECT_OK(polypath_comm_create_all(context_, nullptr, 1, &options, none.data()));
  char* report = nullptr;
  EXPECT_OK(polypath_comm_report(none.front(), &report));
  EXPECT_THAT(report, HasSubstr("\"sum_order\":\"tree\""));
  polypath_free_string(report);
  EXPECT_OK(polypath_comm_destroy(none.front()));

  create_all();
  polypath_symmetric* memory = nullptr;
  EXPECT_REFUSED("memory is null", polypath_comm_alloc(comms_[0], 8, nullptr));
  std::vector<polypath_symmetric*> places(comms_.size());
  std::vector<polypath_comm*> comms(comms_.begin(), comms_.end());
  const int count = static_cast<int>(comms.size());
  comms.back() = comms.front();
  EXPECT_REFUSED("given twice", polypath_comm_alloc_all(comms.data(), count, 8, places.data()));
  EXPECT_REFUSED("given twice", polypath_comm_prepare_all(comms.data(), count));
  std::vector<polypath_comm*> others(comms.size());
  EXPECT_OK(polypath_comm_create_all(context_, nullptr, count, nullptr, others.data()));
  comms.back() = others.back();
  EXPECT_REFUSED("several communicators",
                 polypath_comm_alloc_all(comms.data(), count, 8, places.data()));
  for (polypath_comm* const comm : others) EXPECT_OK(polypath_comm_destroy(comm));
  for (polypath_comm* const comm : comms_) EXPECT_OK(polypath_comm_check(comm));
  EXPECT_REFUSED("bytes is 0", polypath_comm_alloc(comms_[0], 0, &memory));
  EXPECT_REFUSED("memory is null", polypath_comm_free(comms_[0], nullptr));
  EXPECT_REFUSED("local or all is null",
                 polypath_comm_host_all_gather(comms_[0], nullptr, nullptr, 1));
  EXPECT_REFUSED("part is null", polypath_comm_split(comms_[0], 0, 0, nullptr));
  EXPECT_REFUSED("patience is null", polypath_comm_wait_context(comms_[0], nullptr, 40));
  EXPECT_REFUSED("of another version", polypath_comm_wait_context(comms_[0], &options, 8));
  EXPECT_REFUSED("signal is null", polypath_comm_wait_signal(comms_[0], nullptr, nullptr));
  const polypath_signal signal{nullptr, 0, 1};
  EXPECT_REFUSED("signal->memory is null", polypath_comm_signal(comms_[0], 1, &signal, nullptr));
  EXPECT_REFUSED("memory is null",
                 polypath_comm_put(comms_[0], 1, nullptr, 0, nullptr, 0, nullptr));
  std::vector<polypath_symmetric*> memories(kRanks);
  EXPECT_REFUSED("one of memories is null",
                 polypath_comm_free_all(comms_.data(), kRanks, memories.data()));
  for (polypath_comm* comm : comms_) EXPECT_OK(polypath_comm_check(comm));
  destroy_all();
}

TEST_F(CommApi, CreatesFromEnvironment) {
  polypath_comm* comm = nullptr;
  const auto create = [&] {
    return polypath_comm_create_from_environment(context_, -1, nullptr, &comm);
  };
  for (const char* name : {"LOCAL_RANK", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    unsetenv(name);
  EXPECT_REFUSED("LOCAL_RANK is not set", create());
  setenv("LOCAL_RANK", "9", 1);
  EXPECT_REFUSED("LOCAL_RANK is '9': a number from 0 to 3", create());
  setenv("LOCAL_RANK", "1", 1);
  EXPECT_REFUSED("WORLD_SIZE is not set", create());
  setenv("WORLD_SIZE", "1", 1);
  setenv("RANK", "one", 1);
  EXPECT_REFUSED("RANK is 'one'", create());
  setenv("RANK", "0", 1);
  EXPECT_REFUSED("MASTER_PORT is not set", create());
  setenv("MASTER_PORT", "29500", 1);
  EXPECT_REFUSED("MASTER_ADDR is not set", create());
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  EXPECT_OK(create());
  EXPECT_EQ(1, polypath_comm_gpu(comm, 0));
  EXPECT_OK(polypath_comm_destroy(comm));
}

TEST(CommCpp, RanksOnThreads) {
  polypath::context context;
  auto ranks = polypath::communicator::all(context, 2);
  std::vector<std::jthread> threads;
  for (polypath::communicator& comm : ranks)
    threads.emplace_back([&comm] {
      const Rank rank(comm.gpu(comm.rank()));
      polypath::symmetric_memory memory = comm.alloc(64);
      const int other = 1 - comm.rank();
      comm.signal(other, memory.signal(8, 5), rank.stream);
      comm.wait_signal(memory.signal(8, 5), rank.stream);
      EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(rank.stream));
      polypath::communicator part = comm.split(0, -comm.rank());
      EXPECT_EQ(other, part.rank());
      std::vector<std::byte> all(2);
      const std::vector<std::byte> local{std::byte(10 + comm.rank())};
      part.exchange(local, all);
      EXPECT_EQ((std::vector<std::byte>{std::byte{11}, std::byte{10}}), all);
      comm.free(memory);
      try {
        part.barrier(reinterpret_cast<void*>(rank.stream));
        EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(rank.stream));
        part.abort("enough");
        part.check();
        ADD_FAILURE() << "check() says nothing";
      } catch (const polypath::error& error) {
        EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, error.status());
      }
    });
}

}  // namespace
