// The C API of communicators and its thin C++, as a program links them.
#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "polypath/comm.hpp"
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
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_context_create(nullptr, 0, &context_))
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
#define EXPECT_REFUSED(text, call)                       \
  do {                                                   \
    EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, call);          \
    EXPECT_THAT(polypath_last_error(), HasSubstr(text)); \
  } while (false)

/// One thread for all ranks: what is asynchronous needs no more.
TEST_F(CommApi, OneThreadDrivesAllRanks) {
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

TEST_F(CommApi, MemoryThatWasNotFreedGoesWithItsCommunicator) {
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
  EXPECT_EQ(before, polypath_sim_live_allocations());
}

TEST_F(CommApi, ExchangeOfTheCaller) {
  // Ranks of one, whose exchange is a copy; and one that fails.
  int calls = 0;
  const polypath_exchange copy = [](const void* mine, void* all, size_t bytes, void* user) {
    ++*static_cast<int*>(user);
    std::memcpy(all, mine, bytes);
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

  const polypath_exchange fails = [](const void*, void*, size_t, void*) { return 1; };
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
  const std::uint8_t mine = 0;
  std::vector<std::uint8_t> all(kRanks);
  EXPECT_EQ(POLYPATH_COMMUNICATOR_ERROR, polypath_comm_exchange(comms_[3], &mine, all.data(), 1));
  destroy_all();
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
  options.reserved[3] = 1;
  EXPECT_REFUSED("options->reserved is not 0",
                 polypath_comm_create_all(context_, nullptr, 1, &options, none.data()));

  create_all();
  polypath_symmetric* memory = nullptr;
  EXPECT_REFUSED("memory is null", polypath_comm_alloc(comms_[0], 8, nullptr));
  EXPECT_REFUSED("bytes is 0", polypath_comm_alloc(comms_[0], 0, &memory));
  EXPECT_REFUSED("memory is null", polypath_comm_free(comms_[0], nullptr));
  EXPECT_REFUSED("mine or all is null", polypath_comm_exchange(comms_[0], nullptr, nullptr, 1));
  EXPECT_REFUSED("part is null", polypath_comm_split(comms_[0], 0, 0, nullptr));
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

TEST_F(CommApi, TheEnvironmentIsRead) {
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
      const std::vector<std::byte> mine{std::byte(10 + comm.rank())};
      part.exchange(mine, all);
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
