// Programs that only know NCCL, with libpolypath_nccl between them and it: which calls it takes,
// and that nothing else changes. What stands in for NCCL is comm/tests/collectives/nccl_standin.cpp.
#include <gmock/gmock.h>

#include "nccl_sums.hpp"

namespace polypath::test {
namespace {

using testing::Each;

constexpr int kRanks = 4;

TEST(Nccl, FloatSumsAreTakenAndInRankOrder) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(kRanks,
                            [](NcclRank& its) {
                              unsigned seed = 0;
                              for (const std::size_t count : {1, 7, 1000, 5120, 70'001})
                                expect_sum(its, count, ++seed);
                            }),
              Each(""));
  EXPECT_EQ(calls.taken(), 5 * kRanks);
  EXPECT_EQ(calls.by_nccl(), 0);
}

TEST(Nccl, FunctionsThatAreNotTakenPass) {
  const NcclApi& nccl = NcclApi::get();
  int version = 0;
  NCCL_OK(nccl.ncclGetVersion(&version));
  EXPECT_GE(version, 21900);
  EXPECT_STREQ(nccl.ncclGetErrorString(3), "stand-in");
  use_gpu(0);
  void* memory = nullptr;
  EXPECT_EQ(nccl.ncclMemAlloc(&memory, 1 << 20), 0);
  EXPECT_EQ(nccl.ncclMemFree(memory), 0);
}

TEST(Nccl, UnknownFunctionsPass) {
  const NcclApi& nccl = NcclApi::get();
  int version = 0;
  NCCL_OK(nccl.ncclGetVersion(&version));
  const char* const is_in_place = std::getenv("TEST_IN_PLACE");
  if (version < 22800 || is_in_place != nullptr) {
    EXPECT_EQ(nccl.ncclOfTheFuture, nullptr);
    return;
  }
  NcclId id{};
  id.bytes[0] = 17;
  EXPECT_EQ(nccl.ncclOfTheFuture(1, 0.5, id, "four", 0.25F, 10, 20, 30, 40), 122.75);
}

/// ncclAlltoAll is of 2.28.
TEST(Nccl, FunctionsThatTheVersionLacksAreNotThere) {
  const NcclApi& nccl = NcclApi::get();
  int version = 0;
  NCCL_OK(nccl.ncclGetVersion(&version));
  if (version >= 22800) {
    EXPECT_NE(nccl.ncclAlltoAll, nullptr);
  } else if (std::getenv("TEST_IN_PLACE") != nullptr) {
    // The loader finds the name in this library, whatever is after it.
    EXPECT_EQ(nccl.ncclAlltoAll(nullptr, nullptr, 0, 0, nullptr, nullptr), 5);
  } else {
    EXPECT_EQ(nccl.ncclAlltoAll, nullptr);
  }
}

TEST(Nccl, AllGpusOfOneThread_AreOffloaded) {
  const NcclApi& nccl = NcclApi::get();
  const CountsOf calls("ncclAllReduce");
  use_gpu(0);
  std::array<void*, kRanks> comms{};
  const std::array<int, kRanks> gpus{0, 1, 2, 3};
  ASSERT_EQ(nccl.ncclCommInitAll(comms.data(), kRanks, gpus.data()), 0);
  constexpr std::size_t kCount = 3001;
  std::vector<std::unique_ptr<DeviceBytes>> memory;
  std::array<CUstream, kRanks> streams{};
  ASSERT_EQ(nccl.ncclGroupStart(), 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    use_gpu(rank);
    auto& stream = streams[static_cast<std::size_t>(rank)];
    CUDA_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    memory.push_back(std::make_unique<DeviceBytes>(kCount * 4));
    memory.back()->put(0, bytes_of(floats_of(rank, kCount)));
    EXPECT_EQ(nccl.ncclAllReduce(memory.back()->get(), memory.back()->get(), kCount, kFloat32, kSum,
                                 comms[static_cast<std::size_t>(rank)], stream),
              0);
  }
  EXPECT_EQ(calls.taken(), kRanks);
  // Held until the end of the group: nothing is on the streams, and nothing was.
  for (const CUstream stream : streams) EXPECT_EQ(cuStreamQuery(stream), CUDA_SUCCESS);
  EXPECT_EQ(memory[0]->all(), bytes_of(floats_of(0, kCount)));
  ASSERT_EQ(nccl.ncclGroupEnd(), 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    use_gpu(rank);
    CUDA_OK(cuStreamSynchronize(streams[static_cast<std::size_t>(rank)]));
    EXPECT_EQ(memory[static_cast<std::size_t>(rank)]->all(), sum_of(kRanks, kCount));
  }
  for (void* const comm : comms) EXPECT_EQ(nccl.ncclCommDestroy(comm), 0);
  EXPECT_EQ(calls.by_nccl(), 0);
}

/// Ranks that one thread makes in a group.
TEST(Nccl, CommunicatorsMadeInAGroup) {
  const NcclApi& nccl = NcclApi::get();
  const CountsOf calls("ncclAllReduce");
  NcclId id{};
  NCCL_OK(nccl.ncclGetUniqueId(&id));
  std::array<void*, 2> comms{};
  ASSERT_EQ(nccl.ncclGroupStart(), 0);
  for (int rank = 0; rank < 2; ++rank) {
    use_gpu(rank);
    ASSERT_EQ(nccl.ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], 2, id, rank), 0);
  }
  ASSERT_EQ(nccl.ncclGroupEnd(), 0);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      NcclRank its;
      its.rank = rank;
      its.size = 2;
      its.comm = comms[static_cast<std::size_t>(rank)];
      use_gpu(rank);
      for (CUstream& stream : its.streams) CUDA_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      expect_sum(its, 999, 5);
      EXPECT_EQ(nccl.ncclCommDestroy(its.comm), 0);
    });
  threads.clear();
  EXPECT_EQ(calls.taken(), 2);
}

/// One rank is not under this library: nobody may wait for it.
TEST(Nccl, RankIsNotUnderPolypath_AllGoToNccl) {
  const CountsOf calls("ncclAllReduce");
  testing::internal::CaptureStderr();
  for (int time = 0; time < 2; ++time)
    EXPECT_THAT(on_nccl_ranks(
                    3, [](NcclRank& its) { expect_sum(its, 77, 1); },
                    [](NcclRank& its, const NcclId& id) {
                      if (its.rank == 1)
                        NCCL_OK(its.nccl.init_rank_past_all(&its.comm, its.size, id, its.rank));
                      else
                        by_init_rank(its, id);
                    }),
                Each(""));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(calls.taken(), 0);
  EXPECT_EQ(calls.by_nccl(), 2 * 3);
  const std::string line = "2 of the 3 ranks of an NCCL communicator are here under polypath";
  const std::size_t first = said.find(line);
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.rfind(line), first) << said;
}

/// Where it is blocking is not said alike on all ranks: nobody may wait for the one that is not.
TEST(Nccl, CommunicatorsThatDoNotBlockAreNccls) {
  const CountsOf calls("ncclAllReduce");
  for (const int others : {0, INT_MIN})
    EXPECT_THAT(
        on_nccl_ranks(
            2, [](NcclRank& its) { expect_sum(its, 77, 1); },
            [&](NcclRank& its, const NcclId& id) {
              NcclConfig config;
              config.blocking = its.rank == 0 ? 0 : others;
              NCCL_OK(its.nccl.ncclCommInitRankConfig(&its.comm, its.size, id, its.rank, &config));
            }),
        Each(""));
  EXPECT_EQ(calls.taken(), 0);
  EXPECT_EQ(calls.by_nccl(), 2 * 2);
}

TEST(Nccl, PartsOfCommunicatorsAreTaken) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(kRanks,
                            [](NcclRank& its) {
                              // Two of two, the other way round; then one of three.
                              NcclRank part = its;
                              const int color = its.rank % 2;
                              NCCL_OK(its.nccl.ncclCommSplit(its.comm, color, -its.rank, &part.comm,
                                                             nullptr));
                              NCCL_OK(its.nccl.ncclCommUserRank(part.comm, &part.rank));
                              NCCL_OK(its.nccl.ncclCommCount(part.comm, &part.size));
                              EXPECT_EQ(part.size, 2);
                              EXPECT_EQ(part.rank, its.rank < 2 ? 1 : 0);
                              expect_sum(part, 501, 3);
                              NcclRank three = its;
                              three.comm = nullptr;
                              NCCL_OK(its.nccl.ncclCommSplit(its.comm, its.rank == 2 ? -1 : 7,
                                                             its.rank, &three.comm, nullptr));
                              EXPECT_EQ(three.comm == nullptr, its.rank == 2);
                              if (three.comm != nullptr) {
                                NCCL_OK(its.nccl.ncclCommUserRank(three.comm, &three.rank));
                                three.size = 3;
                                expect_sum(three, 502, 4);
                                NCCL_OK(its.nccl.ncclCommDestroy(three.comm));
                              }
                              NCCL_OK(its.nccl.ncclCommDestroy(part.comm));
                              expect_sum(its, 503, 5);
                            }),
              Each(""));
  EXPECT_EQ(calls.taken(), kRanks + 3 + kRanks);
  EXPECT_EQ(calls.by_nccl(), 0);
}

/// Buffers that NCCL takes and polypath's kernels do not: one rank has them, and all stay together.
TEST(Nccl, BuffersOfOneRankAreMendedThere) {
  const CountsOf calls("ncclAllReduce");
  constexpr std::size_t kCount = 2049;
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& its) {
                              void* host = nullptr;
                              CUDA_OK(cuMemHostAlloc(&host, kCount * 4, CU_MEMHOSTALLOC_PORTABLE));
                              DeviceBytes device(kCount * 4);
                              for (unsigned seed = 1; seed < 4; ++seed) {
                                const Bytes mine = bytes_of(floats_of(its.rank, kCount, seed));
                                std::memcpy(host, mine.data(), mine.size());
                                device.put(0, mine);
                                void* const buffer = its.rank == 1 ? host : device.get();
                                NCCL_OK(its.nccl.ncclAllReduce(buffer, buffer, kCount, kFloat32,
                                                               kSum, its.comm, its.streams[0]));
                                its.synchronize();
                                const Bytes sum = sum_of(2, kCount, seed);
                                if (its.rank == 1)
                                  EXPECT_EQ(std::memcmp(host, sum.data(), sum.size()), 0);
                                else
                                  EXPECT_EQ(device.all(), sum);
                              }
                              CUDA_OK(cuMemFreeHost(host));
                            }),
              Each(""));
  EXPECT_EQ(calls.taken(), 2 * 3);
}

/// At the call, in a group too; what else is held in that one goes nowhere.
TEST(Nccl, RootsThatNoRankHasAreRefusedAtTheCall) {
  constexpr int kInvalidArgument = 4;
  const CountsOf reduces("ncclReduce");
  const CountsOf sums("ncclAllReduce");
  constexpr std::size_t kCount = 333;
  EXPECT_THAT(
      on_nccl_ranks(2,
                    [&](NcclRank& its) {
                      DeviceBytes send(kCount * 4);
                      DeviceBytes recv(kCount * 4);
                      send.put(0, bytes_of(floats_of(its.rank, kCount)));
                      const auto reduce = [&](int root) {
                        return its.nccl.ncclReduce(send.get(), recv.get(), kCount, kFloat32, kSum,
                                                   root, its.comm, its.streams[0]);
                      };
                      for (const int root : {2, -1, INT_MAX, INT_MIN}) {
                        EXPECT_EQ(reduce(root), kInvalidArgument);
                        NCCL_OK(its.nccl.ncclGroupStart());
                        NCCL_OK(its.nccl.ncclAllReduce(send.get(), recv.get(), kCount, kFloat32,
                                                       kSum, its.comm, its.streams[0]));
                        NCCL_OK(its.nccl.ncclGroupStart());
                        EXPECT_EQ(reduce(root), kInvalidArgument);
                        NCCL_OK(its.nccl.ncclGroupEnd());
                        NCCL_OK(reduce(1));
                        EXPECT_EQ(its.nccl.ncclGroupEnd(), kInvalidArgument);
                      }
                      its.synchronize();
                      EXPECT_EQ(recv.all(), Bytes(kCount * 4, kPoison));
                      // The next group is one like others.
                      NCCL_OK(its.nccl.ncclGroupStart());
                      NCCL_OK(reduce(1));
                      NCCL_OK(its.nccl.ncclGroupEnd());
                      its.synchronize();
                      if (its.rank == 1)
                        expect_floats(recv.all(), sum_of(2, kCount), "reduce", its.rank);
                      else
                        EXPECT_EQ(recv.all(), Bytes(kCount * 4, kPoison));
                      EXPECT_TRUE(recv.is_guarded());
                      EXPECT_EQ(send.all(), bytes_of(floats_of(its.rank, kCount)));
                    }),
      Each(""));
  EXPECT_EQ(reduces.taken(), 2 * (4 + 1));
  EXPECT_EQ(reduces.by_nccl(), 0);
  EXPECT_EQ(sums.taken(), 2 * 4);
}

TEST(Nccl, GraphsHoldWhatIsTaken) {
  constexpr std::size_t kCount = 4097;
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(
      on_nccl_ranks(kRanks,
                    [](NcclRank& its) {
                      DeviceBytes send(kCount * 4);
                      DeviceBytes recv(kCount * 4);
                      CUgraph graph = nullptr;
                      CUgraphExec launched = nullptr;
                      CUDA_OK(cuStreamBeginCapture(its.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
                      NCCL_OK(its.nccl.ncclAllReduce(send.get(), recv.get(), kCount, kFloat32, kSum,
                                                     its.comm, its.streams[0]));
                      CUDA_OK(cuStreamEndCapture(its.streams[0], &graph));
                      CUDA_OK(cuGraphInstantiate(&launched, graph, 0));
                      for (unsigned seed = 1; seed < 4; ++seed) {
                        send.put(0, bytes_of(floats_of(its.rank, kCount, seed)));
                        CUDA_OK(cuGraphLaunch(launched, its.streams[0]));
                        expect_sum(its, 33, seed);
                        expect_floats(recv.all(), sum_of(kRanks, kCount, seed), "graph", its.rank);
                      }
                      CUDA_OK(cuGraphExecDestroy(launched));
                      CUDA_OK(cuGraphDestroy(graph));
                    }),
      Each(""));
  EXPECT_EQ(calls.taken(), kRanks * 4);
}

TEST(Nccl, OperatorsOfTheProgramAreNccls) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(
                  2,
                  [](NcclRank& its) {
                    int op = 0;
                    float scalar = 1;
                    NCCL_OK(its.nccl.ncclRedOpCreatePreMulSum(&op, &scalar, kFloat32, 1, its.comm));
                    DeviceBytes buffer(40);
                    buffer.put(0, bytes_of(floats_of(its.rank, 10)));
                    NCCL_OK(its.nccl.ncclAllReduce(buffer.get(), buffer.get(), 10, kFloat32, op,
                                                   its.comm, its.streams[0]));
                    its.synchronize();
                    expect_floats(buffer.all(), sum_of(2, 10), "operator", its.rank);
                  }),
              Each(""));
  EXPECT_EQ(calls.taken(), 0);
  EXPECT_EQ(calls.by_nccl(), 2);
}

/// Many communicators, one after another, by threads that do not wait for each other.
TEST(Nccl, CommunicatorsComeAndGo) {
  for (int time = 0; time < 5; ++time)
    EXPECT_THAT(on_nccl_ranks(2,
                              [](NcclRank& its) {
                                expect_sum(its, 100, 1);
                                int error = -1;
                                NCCL_OK(its.nccl.ncclCommGetAsyncError(its.comm, &error));
                                EXPECT_EQ(error, 0);
                                NCCL_OK(its.nccl.ncclCommFinalize(its.comm));
                              }),
                Each(""));
}

/// A rank gives up: the others' kernels end, and NCCL's word for it is said.
TEST(Nccl, AbortEndsTheWaitsOfAllRanks) {
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& its) {
                              DeviceBytes buffer(4000);
                              if (its.rank == 0) {
                                // It may come when the other one has gone.
                                int error = its.nccl.ncclAllReduce(buffer.get(), buffer.get(), 1000,
                                                                   kFloat32, kSum, its.comm,
                                                                   its.streams[0]);
                                while (error == 0) {
                                  NCCL_OK(its.nccl.ncclCommGetAsyncError(its.comm, &error));
                                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                }
                                EXPECT_EQ(error, 6);  // ncclRemoteError
                              }
                              NCCL_OK(its.nccl.ncclCommAbort(its.comm));
                              its.comm = nullptr;
                              its.synchronize();  // its kernel has the buffer until then
                            }),
              Each(""));
}

/// What NCCL does by functions of its own that stand in here, too.
TEST(Nccl, CallsOfNcclsOwnAreNotTakenTwice) {
  const CountsOf bcasts("ncclBcast");
  const CountsOf broadcasts("ncclBroadcast");
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& its) {
                              DeviceBytes buffer(44);
                              buffer.put(0, bytes_of(floats_of(its.rank, 11)));
                              NCCL_OK(its.nccl.ncclBcast(buffer.get(), 11, kFloat32, 1, its.comm,
                                                         its.streams[0]));
                              its.synchronize();
                              EXPECT_EQ(buffer.all(), bytes_of(floats_of(1, 11)));
                            }),
              Each(""));
  EXPECT_EQ(bcasts.by_nccl(), 2);
  // Counted once each, as the broadcast in place that it is.
  const nlohmann::json counted = nccl_report()["calls"]["ncclBroadcast"];
  EXPECT_EQ(counted["to_nccl"]["not measured"].get<int>(), 2) << counted;
  EXPECT_EQ(broadcasts.taken(), 0);
}

}  // namespace
}  // namespace polypath::test
