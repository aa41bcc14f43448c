// Buffers that polypath's kernels do not reach, pinned host memory here: one rank has them, and its
// calls go over memory of its GPU. How much of that they take, in what order they have it, and what
// becomes of the communicator when there is none.
#include <gmock/gmock.h>

#include <algorithm>
#include <barrier>
#include <memory>

#include "nccl_sums.hpp"

namespace polypath::test {
namespace {

using testing::Each;

/// Pinned, with a guard on either side.
class HostBytes {
 public:
  static constexpr std::size_t kGuard = 64;
  explicit HostBytes(std::size_t bytes) : bytes_(bytes) {
    void* memory = nullptr;
    CUDA_OK(cuMemHostAlloc(&memory, bytes + 2 * kGuard, CU_MEMHOSTALLOC_PORTABLE));
    memory_ = static_cast<std::byte*>(memory);
    std::fill_n(memory_, bytes + 2 * kGuard, kPoison);
  }
  ~HostBytes() { cuMemFreeHost(memory_); }
  HostBytes(const HostBytes&) = delete;
  HostBytes& operator=(const HostBytes&) = delete;

  [[nodiscard]] void* get() const { return memory_ + kGuard; }
  void put(const Bytes& contents) { std::ranges::copy(contents, memory_ + kGuard); }
  [[nodiscard]] Bytes all() const { return {memory_ + kGuard, memory_ + kGuard + bytes_}; }
  [[nodiscard]] bool is_guarded() const {
    const auto is_poison = [](std::byte byte) { return byte == kPoison; };
    return std::all_of(memory_, memory_ + kGuard, is_poison) &&
           std::all_of(memory_ + kGuard + bytes_, memory_ + 2 * kGuard + bytes_, is_poison);
  }

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_;
};

/// A sum whose buffers rank 1 has in pinned memory, and others on their GPUs.
class Sum {
 public:
  Sum(const NcclRank& member, std::size_t count) : member_(member), count_(count) {
    if (member.rank == 1) {
      for (auto& buffer : host_) buffer = std::make_unique<HostBytes>(4 * count);
    } else {
      for (auto& buffer : device_) buffer = std::make_unique<DeviceBytes>(4 * count);
    }
  }
  /// Scratch for what this rank's GPU gives at most: what is sent, and what comes back.
  static std::size_t scratch_of(std::size_t count) { return 2 * 4 * count + 256; }

  void fill(unsigned seed) {
    seed_ = seed;
    const Bytes contents = bytes_of(floats_of(member_.rank, count_, seed));
    const Bytes poison(4 * count_, kPoison);
    if (member_.rank == 1) {
      host_[0]->put(contents);
      host_[1]->put(poison);
    } else {
      device_[0]->put(0, contents);
      device_[1]->put(0, poison);
    }
  }
  [[nodiscard]] int call(CUstream stream) const {
    const bool is_host = member_.rank == 1;
    return member_.nccl.ncclAllReduce(is_host ? host_[0]->get() : device_[0]->get(),
                                      is_host ? host_[1]->get() : device_[1]->get(), count_,
                                      kFloat32, kSum, member_.comm, stream);
  }
  void check() const {
    const bool is_host = member_.rank == 1;
    expect_floats(is_host ? host_[1]->all() : device_[1]->all(),
                  sum_of(member_.size, count_, seed_), "sum", member_.rank);
    EXPECT_EQ(is_host ? host_[0]->all() : device_[0]->all(),
              bytes_of(floats_of(member_.rank, count_, seed_)));
    for (const auto& buffer : host_) EXPECT_TRUE(buffer == nullptr || buffer->is_guarded());
    for (const auto& buffer : device_) EXPECT_TRUE(buffer == nullptr || buffer->is_guarded());
  }

 private:
  const NcclRank& member_;
  std::size_t count_;
  unsigned seed_ = 0;
  std::array<std::unique_ptr<HostBytes>, 2> host_;  // what is sent, what is received
  std::array<std::unique_ptr<DeviceBytes>, 2> device_;
};

/// Neither pinned nor the GPU's, as NCCL's kernels may have it on some machines: one thread makes
/// the calls of both ranks, in a group and without, and none of them waits for the other rank's.
TEST(NcclScratch, PageableBuffersOfOneThread_DoNotHang) {
  constexpr std::size_t kCount = 40'000;
  const NcclApi& nccl = NcclApi::get();
  use_gpu(0);
  std::array<void*, 2> comms{};
  NCCL_OK(nccl.ncclCommInitAll(comms.data(), 2, std::array{0, 1}.data()));
  const CountsOf calls("ncclAllReduce");
  std::array<CUstream, 2> streams{};
  for (int rank = 0; rank < 2; ++rank) {
    use_gpu(rank);
    CUDA_OK(cuStreamCreate(&streams.at(static_cast<std::size_t>(rank)), CU_STREAM_NON_BLOCKING));
  }
  for (unsigned seed = 0; seed < 4; ++seed) {
    const bool in_group = seed % 2 == 0;
    std::array<Bytes, 2> sent;
    std::array<Bytes, 2> received;
    if (in_group) NCCL_OK(nccl.ncclGroupStart());
    for (const std::size_t rank : {0, 1}) {
      use_gpu(static_cast<int>(rank));
      sent.at(rank) = bytes_of(floats_of(static_cast<int>(rank), kCount, seed));
      received.at(rank).assign(4 * kCount + 64, kPoison);
      NCCL_OK(nccl.ncclAllReduce(sent.at(rank).data(), received.at(rank).data(), kCount, kFloat32,
                                 kSum, comms.at(rank), streams.at(rank)));
    }
    if (in_group) NCCL_OK(nccl.ncclGroupEnd());
    Bytes expected = sum_of(2, kCount, seed);
    expected.resize(4 * kCount + 64, kPoison);
    for (const std::size_t rank : {0, 1}) {
      use_gpu(static_cast<int>(rank));
      CUDA_OK(cuStreamSynchronize(streams.at(rank)));
      EXPECT_EQ(received.at(rank), expected) << rank;
      EXPECT_EQ(sent.at(rank), bytes_of(floats_of(static_cast<int>(rank), kCount, seed)));
    }
  }
  EXPECT_EQ(calls.taken(), 2 * 4);
  for (void* const comm : comms) NCCL_OK(nccl.ncclCommDestroy(comm));
}

/// One after another, each larger; the same on all ranks.
std::vector<std::size_t> growing_counts(int how_many) {
  std::mt19937 random(7);
  std::vector<std::size_t> counts;
  std::size_t count = 500;
  for (int i = 0; i < how_many; ++i) counts.push_back(count += 1 + random() % 50);
  return counts;
}

TEST(NcclScratch, GrowingBuffers_TakeUnderTwiceTheLargest) {
  const CountsOf calls("ncclAllReduce");
  const std::vector<std::size_t> counts = growing_counts(40);
  EXPECT_THAT(on_nccl_ranks(2,
                            [&](NcclRank& member) {
                              expect_sum(member, 100, 1);
                              const std::size_t before = free_bytes();
                              unsigned seed = 1;
                              for (const std::size_t count : counts) {
                                Sum sum(member, count);
                                sum.fill(++seed);
                                NCCL_OK(sum.call(member.streams[seed % 2]));
                                member.synchronize();
                                sum.check();
                              }
                              EXPECT_LT(before - free_bytes(), 2 * Sum::scratch_of(counts.back()));
                            }),
              Each(""));
  EXPECT_EQ(calls.taken(), 2 * (1 + 40));
}

TEST(NcclScratch, ConcurrentCalls_ShareStagingBuffers) {
  const std::vector<std::size_t> counts = growing_counts(40);
  EXPECT_THAT(on_nccl_ranks(2,
                            [&](NcclRank& member) {
                              expect_sum(member, 100, 1);
                              std::vector<std::unique_ptr<Sum>> sums;
                              for (const std::size_t count : counts) {
                                sums.push_back(std::make_unique<Sum>(member, count));
                                sums.back()->fill(static_cast<unsigned>(count));
                              }
                              const std::size_t before = free_bytes();
                              for (std::size_t i = 0; i < sums.size(); ++i)
                                NCCL_OK(sums[i]->call(member.streams[i % 2]));
                              member.synchronize();
                              for (const auto& sum : sums) sum->check();
                              EXPECT_LT(before - free_bytes(), 4 * Sum::scratch_of(counts.back()));
                            }),
              Each(""));
}

/// Three sums, the middle one on a stream of its own.
CUgraphExec captured(const NcclRank& member, const std::array<std::unique_ptr<Sum>, 3>& sums) {
  CUgraph graph = nullptr;
  CUgraphExec launched = nullptr;
  CUevent forked = nullptr;
  CUDA_OK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
  CUDA_OK(cuStreamBeginCapture(member.streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CUDA_OK(cuEventRecord(forked, member.streams[0]));
  CUDA_OK(cuStreamWaitEvent(member.streams[1], forked, 0));
  for (const std::size_t i : {0, 1, 2}) NCCL_OK(sums.at(i)->call(member.streams[i % 2]));
  CUDA_OK(cuEventRecord(forked, member.streams[1]));
  CUDA_OK(cuStreamWaitEvent(member.streams[0], forked, 0));
  CUDA_OK(cuStreamEndCapture(member.streams[0], &graph));
  CUDA_OK(cuGraphInstantiate(&launched, graph, 0));
  CUDA_OK(cuGraphDestroy(graph));
  CUDA_OK(cuEventDestroy(forked));
  return launched;
}

/// Graphs are launched next to calls, without a wait: all of them have the same memory in turn.
TEST(NcclScratch, GraphsShareIt) {
  constexpr std::size_t kGraphs = 12;
  const std::vector<std::size_t> counts = growing_counts(3 * kGraphs);
  EXPECT_THAT(on_nccl_ranks(2,
                            [&](NcclRank& member) {
                              expect_sum(member, 100, 1);
                              std::vector<std::array<std::unique_ptr<Sum>, 3>> sums(kGraphs);
                              for (std::size_t i = 0; i < 3 * kGraphs; ++i)
                                sums[i / 3].at(i % 3) = std::make_unique<Sum>(member, counts[i]);
                              Sum beside(member, counts.back());
                              const std::size_t before = free_bytes();
                              std::vector<CUgraphExec> graphs;
                              for (const auto& row : sums) graphs.push_back(captured(member, row));
                              EXPECT_LT(before - free_bytes(), 4 * Sum::scratch_of(counts.back()));
                              std::mt19937 random(3);  // the same on all ranks
                              for (unsigned turn = 1; turn < 4; ++turn) {
                                std::ranges::for_each(sums, [&](const auto& row) {
                                  for (const auto& sum : row) sum->fill(turn);
                                });
                                beside.fill(turn);
                                std::vector<std::size_t> order(kGraphs);
                                for (std::size_t i = 0; i < kGraphs; ++i) order[i] = i;
                                std::ranges::shuffle(order, random);
                                for (std::size_t i = 0; i < kGraphs; ++i) {
                                  CUDA_OK(cuGraphLaunch(graphs[order[i]], member.streams[i % 2]));
                                  if (i == kGraphs / 2)
                                    NCCL_OK(beside.call(member.streams[turn % 2]));
                                }
                                member.synchronize();
                                for (const auto& row : sums)
                                  for (const auto& sum : row) sum->check();
                                beside.check();
                              }
                              for (const CUgraphExec graph : graphs)
                                CUDA_OK(cuGraphExecDestroy(graph));
                            }),
              Each(""));
}

/// Takes memory of the current GPU until `left` bytes are.
class Shortage {
 public:
  explicit Shortage(std::size_t left) { CUDA_OK(cuMemAlloc(&memory_, free_bytes() - left)); }
  ~Shortage() { cuMemFree(memory_); }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;

 private:
  CUdeviceptr memory_ = 0;
};

/// There is no room for two pieces: the one that is in use is waited for, and freed.
TEST(NcclScratch, OutOfMemory_WaitsForAndFreesStaging) {
  constexpr std::size_t kSmall = 3000;
  constexpr std::size_t kLarge = 4000;
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& member) {
                              expect_sum(member, 100, 1);
                              Sum small(member, kSmall);
                              Sum large(member, kLarge);
                              small.fill(2);
                              large.fill(3);
                              std::unique_ptr<Shortage> shortage;
                              if (member.rank == 1)
                                shortage = std::make_unique<Shortage>(Sum::scratch_of(kLarge));
                              NCCL_OK(small.call(member.streams[0]));
                              NCCL_OK(large.call(member.streams[1]));
                              member.synchronize();
                              small.check();
                              large.check();
                            }),
              Each(""));
}

/// Rank 1 cannot: it says why, and the others, which wait on their streams, hear of it.
void expect_an_end_for_all(const char* why, const std::function<int(NcclRank&)>& fail) {
  testing::internal::CaptureStderr();
  EXPECT_THAT(on_nccl_ranks(2,
                            [&](NcclRank& member) {
                              expect_sum(member, 100, 1);
                              if (member.rank == 1) {
                                EXPECT_EQ(fail(member), 1);  // ncclUnhandledCudaError
                                return;
                              }
                              Sum sum(member, 5000);
                              sum.fill(2);
                              // It may come after the other's end.
                              int error = sum.call(member.streams[0]);
                              while (error == 0) {
                                NCCL_OK(member.nccl.ncclCommGetAsyncError(member.comm, &error));
                                std::this_thread::yield();
                              }
                              EXPECT_EQ(error, 6);  // ncclRemoteError
                              member.synchronize();
                            }),
              Each(""));
  const std::string messages = testing::internal::GetCapturedStderr();
  EXPECT_THAT(messages, testing::HasSubstr(std::string("ncclAllReduce of rank 1 failed: ") + why));
  EXPECT_THAT(messages, testing::Not(testing::HasSubstr("is no memory of a GPU")));
}

TEST(NcclScratch, RankWithoutMemory_EndsWaitsOfAll) {
  expect_an_end_for_all("a rank has no memory for a buffer that kernels do not reach\n",
                        [](NcclRank& member) {
                          Sum sum(member, 5000);
                          sum.fill(2);
                          const Shortage shortage(4096);
                          return sum.call(member.streams[0]);
                        });
}

TEST(NcclScratch, RankThatCannotCopy_EndsWaitsOfAll) {
  expect_an_end_for_all(
      "a rank cannot copy a buffer that kernels do not reach\n", [](NcclRank& member) {
        // Not aligned, and it ends before the call's elements do.
        const DeviceBytes buffer(4 * 2500, 1);
        return member.nccl.ncclAllReduce(buffer.get(), buffer.get(), 5000, kFloat32, kSum,
                                         member.comm, member.streams[0]);
      });
}

/// With its communicator, however many sizes and captures there were. In a process of its own:
/// memory of communicators that other tests have destroyed may be freed meanwhile.
TEST(NcclScratchEnd, FreesAll) {
  const std::vector<std::size_t> counts = growing_counts(9);
  EXPECT_THAT(on_nccl_ranks(2,
                            [&](NcclRank& member) {
                              expect_sum(member, 100, 1);
                              const std::size_t before = free_bytes();
                              NcclRank part = member;
                              NCCL_OK(member.nccl.ncclCommSplit(member.comm, 0, member.rank,
                                                                &part.comm, nullptr));
                              for (std::size_t i = 0; i < counts.size(); i += 3) {
                                std::array<std::unique_ptr<Sum>, 3> sums;
                                for (std::size_t j = 0; j < 3; ++j) {
                                  sums.at(j) = std::make_unique<Sum>(part, counts[i + j]);
                                  sums.at(j)->fill(3);
                                }
                                const CUgraphExec graph = captured(part, sums);
                                CUDA_OK(cuGraphLaunch(graph, member.streams[0]));
                                NCCL_OK(sums[0]->call(member.streams[1]));
                                member.synchronize();
                                for (const auto& sum : sums) sum->check();
                                CUDA_OK(cuGraphExecDestroy(graph));
                              }
                              EXPECT_LT(free_bytes(), before);
                              NCCL_OK(member.nccl.ncclCommDestroy(part.comm));
                              // By a thread of its own.
                              while (free_bytes() < before) std::this_thread::yield();
                            }),
              Each(""));
}

}  // namespace
}  // namespace polypath::test
