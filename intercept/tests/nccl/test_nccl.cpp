// Programs that only know NCCL, with libpolypath_nccl between them and it: which calls it takes,
// and that nothing else changes. What stands in for NCCL is
// comm/tests/collectives/nccl_standin.cpp.
#include <gmock/gmock.h>

#include <algorithm>

#include "nccl_sums.hpp"

namespace polypath::test {
namespace {

using testing::Each;

constexpr int kRanks = 4;

TEST(Nccl, FloatSumsAreTakenAndInRankOrder) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(kRanks,
                            [](NcclRank& member) {
                              unsigned seed = 0;
                              for (const std::size_t count : {1, 7, 1000, 5120, 70'001})
                                expect_sum(member, count, ++seed);
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
    // The loader finds the name in this library, with any library after it.
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
      NcclRank member;
      member.rank = rank;
      member.size = 2;
      member.comm = comms[static_cast<std::size_t>(rank)];
      use_gpu(rank);
      for (CUstream& stream : member.streams)
        CUDA_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      expect_sum(member, 999, 5);
      EXPECT_EQ(nccl.ncclCommDestroy(member.comm), 0);
    });
  threads.clear();
  EXPECT_EQ(calls.taken(), 2);
}

/// One rank is not under this library: no rank may wait for it.
TEST(Nccl, RankIsNotUnderPolypath_AllGoToNccl) {
  const CountsOf calls("ncclAllReduce");
  testing::internal::CaptureStderr();
  for (int time = 0; time < 2; ++time)
    EXPECT_THAT(
        on_nccl_ranks(
            3, [](NcclRank& member) { expect_sum(member, 77, 1); },
            [](NcclRank& member, const NcclId& id) {
              if (member.rank == 1)
                NCCL_OK(member.nccl.init_rank_past_all(&member.comm, member.size, id, member.rank));
              else
                by_init_rank(member, id);
            }),
        Each(""));
  const std::string messages = testing::internal::GetCapturedStderr();
  EXPECT_EQ(calls.taken(), 0);
  EXPECT_EQ(calls.by_nccl(), 2 * 3);
  const std::string line = "2 of the 3 ranks of an NCCL communicator are here under polypath";
  const std::size_t first = messages.find(line);
  EXPECT_NE(first, std::string::npos) << messages;
  EXPECT_EQ(messages.rfind(line), first) << messages;
}

struct ConfigCase {
  const char* what;
  NcclCallConfig config;
  bool is_taken;
};
std::vector<ConfigCase> config_cases(CUevent event, const int* extension) {
  constexpr std::size_t kSizeOf231 = offsetof(NcclCallConfig, launch_completion_event);
  return {
      {"as initialised", {}, true},
      {"as of 2.31, which has no event",
       {.size = kSizeOf231, .launch_completion_event = event},
       true},
      {"for profilers", {.profiler_tag = 17}, true},
      {"for another vendor's library", {.extensions = extension}, true},
      {"any algorithm", {.algorithms = ""}, true},
      {"an algorithm", {.algorithms = "ring"}, false},
      {"few blocks", {.max_ctas = 4}, false},
      {"many blocks", {.min_ctas = 4}, false},
      {"clusters", {.cga_cluster_size = 2}, false},
      {"blocks of NVLS", {.nvls_ctas = 2}, false},
      {"a policy", {.cta_policy = 1}, false},
      {"an event", {.launch_completion_event = event}, false},
      {"too short", {.size = 16}, false},
      {"not initialised", {.magic = 0}, false},
  };
}

/// Whole numbers: their sum is the same in every order.
std::vector<float> whole_floats(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 997) + 1000.F * rank;
  return values;
}

TEST(Nccl, CallConfig_GoesToNcclWhereItAsksForMore) {
  constexpr std::size_t kCount = 3001;
  const CountsOf calls("ncclAllReduce");
  const CountsOf passed("ncclAllReduceConfig");
  const int extension = 0;
  const std::vector<ConfigCase> all = config_cases(nullptr, &extension);
  const auto taken = static_cast<int>(std::ranges::count_if(all, &ConfigCase::is_taken));
  const int passed_on = static_cast<int>(all.size()) - taken;
  EXPECT_THAT(on_nccl_ranks(2,
                            [&](NcclRank& member) {
                              CUevent event = nullptr;
                              CUDA_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
                              std::vector<float> sum = whole_floats(0, kCount);
                              const std::vector<float> others = whole_floats(1, kCount);
                              for (std::size_t i = 0; i < kCount; ++i) sum[i] += others[i];
                              DeviceBytes send(kCount * 4);
                              send.put(0, bytes_of(whole_floats(member.rank, kCount)));
                              for (const ConfigCase& each : config_cases(event, &extension)) {
                                DeviceBytes recv(kCount * 4);
                                NCCL_OK(member.nccl.ncclAllReduceConfig(
                                    send.get(), recv.get(), kCount, kFloat32, kSum, member.comm,
                                    member.streams[0], &each.config));
                                member.synchronize();
                                expect_floats(recv.all(), bytes_of(sum), each.what, member.rank);
                                EXPECT_TRUE(recv.is_guarded());
                              }
                              CUDA_OK(cuEventDestroy(event));
                            }),
              Each(""));
  EXPECT_EQ(calls.taken(), 2 * taken);
  EXPECT_EQ(passed.by_nccl(), 2 * passed_on);
}

TEST(Nccl, NoCallConfig_IsThePlainCall) {
  constexpr std::size_t kCount = 1024;
  const std::array<const char*, 3> names{"ncclAllReduce", "ncclReduceScatter", "ncclReduce"};
  std::vector<CountsOf> calls(names.begin(), names.end());
  EXPECT_THAT(
      on_nccl_ranks(
          2,
          [&](NcclRank& member) {
            const NcclApi& nccl = member.nccl;
            const CUstream stream = member.streams[0];
            DeviceBytes send(kCount * 4);
            send.put(0, bytes_of(floats_of(member.rank, kCount)));
            const Bytes sum = sum_of(2, kCount);
            const auto expect = [&](const DeviceBytes& recv, const Bytes& right, const char* what) {
              member.synchronize();
              expect_floats(recv.all(), right, what, member.rank);
              EXPECT_TRUE(recv.is_guarded());
            };
            DeviceBytes all(kCount * 4);
            NCCL_OK(nccl.ncclAllReduceConfig(send.get(), all.get(), kCount, kFloat32, kSum,
                                             member.comm, stream, nullptr));
            expect(all, sum, "all-reduce");
            DeviceBytes part(kCount * 2);
            NCCL_OK(nccl.ncclReduceScatterConfig(send.get(), part.get(), kCount / 2, kFloat32, kSum,
                                                 member.comm, stream, nullptr));
            const auto half = static_cast<std::ptrdiff_t>(kCount * 2);
            expect(part,
                   member.rank == 0 ? Bytes(sum.begin(), sum.begin() + half)
                                    : Bytes(sum.begin() + half, sum.end()),
                   "reduce-scatter");
            DeviceBytes root(kCount * 4);
            NCCL_OK(nccl.ncclReduceConfig(send.get(), root.get(), kCount, kFloat32, kSum, 1,
                                          member.comm, stream, nullptr));
            expect(root, member.rank == 1 ? sum : Bytes(kCount * 4, kPoison), "reduce");
            // Never measured here, so they stay with NCCL, by the call that was made.
            DeviceBytes gathered(kCount * 8);
            NCCL_OK(nccl.ncclAllGatherConfig(send.get(), gathered.get(), kCount, kFloat32,
                                             member.comm, stream, nullptr));
            Bytes both = bytes_of(floats_of(0, kCount));
            const Bytes second = bytes_of(floats_of(1, kCount));
            both.insert(both.end(), second.begin(), second.end());
            expect(gathered, both, "all-gather");
            DeviceBytes cast(kCount * 4);
            NCCL_OK(nccl.ncclBroadcastConfig(send.get(), cast.get(), kCount, kFloat32, 1,
                                             member.comm, stream, nullptr));
            expect(cast, second, "broadcast");
            DeviceBytes swapped(kCount * 4);
            NCCL_OK(nccl.ncclAlltoAllConfig(send.get(), swapped.get(), kCount / 2, kFloat32,
                                            member.comm, stream, nullptr));
            Bytes halves;
            for (int rank = 0; rank < 2; ++rank) {
              const Bytes from = bytes_of(floats_of(rank, kCount));
              const auto begin = from.begin() + member.rank * half;
              halves.insert(halves.end(), begin, begin + half);
            }
            expect(swapped, halves, "all-to-all");
          }),
      Each(""));
  for (const CountsOf& each : calls) EXPECT_EQ(each.taken(), 2);
  for (const char* const name :
       {"ncclAllGatherConfig", "ncclBroadcastConfig", "ncclAlltoAllConfig"})
    EXPECT_EQ(NcclApi::get().calls(name), 2) << name;
}

/// Ranks do not agree on whether it is blocking: no rank may wait for one that is not.
TEST(Nccl, CommunicatorsThatDoNotBlockAreNccls) {
  const CountsOf calls("ncclAllReduce");
  for (const int others : {0, INT_MIN})
    EXPECT_THAT(on_nccl_ranks(
                    2, [](NcclRank& member) { expect_sum(member, 77, 1); },
                    [&](NcclRank& member, const NcclId& id) {
                      NcclConfig config;
                      config.blocking = member.rank == 0 ? 0 : others;
                      NCCL_OK(member.nccl.ncclCommInitRankConfig(&member.comm, member.size, id,
                                                                 member.rank, &config));
                    }),
                Each(""));
  EXPECT_EQ(calls.taken(), 0);
  EXPECT_EQ(calls.by_nccl(), 2 * 2);
}

TEST(Nccl, PartsOfCommunicatorsAreTaken) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(
      on_nccl_ranks(kRanks,
                    [](NcclRank& member) {
                      // Two of two, the other way round; then one of three.
                      NcclRank part = member;
                      const int color = member.rank % 2;
                      NCCL_OK(member.nccl.ncclCommSplit(member.comm, color, -member.rank,
                                                        &part.comm, nullptr));
                      NCCL_OK(member.nccl.ncclCommUserRank(part.comm, &part.rank));
                      NCCL_OK(member.nccl.ncclCommCount(part.comm, &part.size));
                      EXPECT_EQ(part.size, 2);
                      EXPECT_EQ(part.rank, member.rank < 2 ? 1 : 0);
                      expect_sum(part, 501, 3);
                      NcclRank three = member;
                      three.comm = nullptr;
                      NCCL_OK(member.nccl.ncclCommSplit(member.comm, member.rank == 2 ? -1 : 7,
                                                        member.rank, &three.comm, nullptr));
                      EXPECT_EQ(three.comm == nullptr, member.rank == 2);
                      if (three.comm != nullptr) {
                        NCCL_OK(member.nccl.ncclCommUserRank(three.comm, &three.rank));
                        three.size = 3;
                        expect_sum(three, 502, 4);
                        NCCL_OK(member.nccl.ncclCommDestroy(three.comm));
                      }
                      NCCL_OK(member.nccl.ncclCommDestroy(part.comm));
                      expect_sum(member, 503, 5);
                    }),
      Each(""));
  EXPECT_EQ(calls.taken(), kRanks + 3 + kRanks);
  EXPECT_EQ(calls.by_nccl(), 0);
}

/// Buffers that NCCL takes and polypath's kernels do not: one rank has them, and all stay together.
TEST(Nccl, BuffersOfOneRankAreMendedThere) {
  const CountsOf calls("ncclAllReduce");
  constexpr std::size_t kCount = 2049;
  EXPECT_THAT(
      on_nccl_ranks(2,
                    [](NcclRank& member) {
                      void* host = nullptr;
                      CUDA_OK(cuMemHostAlloc(&host, kCount * 4, CU_MEMHOSTALLOC_PORTABLE));
                      DeviceBytes device(kCount * 4);
                      for (unsigned seed = 1; seed < 4; ++seed) {
                        const Bytes contents = bytes_of(floats_of(member.rank, kCount, seed));
                        std::memcpy(host, contents.data(), contents.size());
                        device.put(0, contents);
                        void* const buffer = member.rank == 1 ? host : device.get();
                        NCCL_OK(member.nccl.ncclAllReduce(buffer, buffer, kCount, kFloat32, kSum,
                                                          member.comm, member.streams[0]));
                        member.synchronize();
                        const Bytes sum = sum_of(2, kCount, seed);
                        if (member.rank == 1)
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
                    [&](NcclRank& member) {
                      DeviceBytes send(kCount * 4);
                      DeviceBytes recv(kCount * 4);
                      send.put(0, bytes_of(floats_of(member.rank, kCount)));
                      const auto reduce = [&](int root) {
                        return member.nccl.ncclReduce(send.get(), recv.get(), kCount, kFloat32,
                                                      kSum, root, member.comm, member.streams[0]);
                      };
                      for (const int root : {2, -1, INT_MAX, INT_MIN}) {
                        EXPECT_EQ(reduce(root), kInvalidArgument);
                        NCCL_OK(member.nccl.ncclGroupStart());
                        NCCL_OK(member.nccl.ncclAllReduce(send.get(), recv.get(), kCount, kFloat32,
                                                          kSum, member.comm, member.streams[0]));
                        NCCL_OK(member.nccl.ncclGroupStart());
                        EXPECT_EQ(reduce(root), kInvalidArgument);
                        NCCL_OK(member.nccl.ncclGroupEnd());
                        NCCL_OK(reduce(1));
                        EXPECT_EQ(member.nccl.ncclGroupEnd(), kInvalidArgument);
                      }
                      member.synchronize();
                      EXPECT_EQ(recv.all(), Bytes(kCount * 4, kPoison));
                      // The next group is one like others.
                      NCCL_OK(member.nccl.ncclGroupStart());
                      NCCL_OK(reduce(1));
                      NCCL_OK(member.nccl.ncclGroupEnd());
                      member.synchronize();
                      if (member.rank == 1)
                        expect_floats(recv.all(), sum_of(2, kCount), "reduce", member.rank);
                      else
                        EXPECT_EQ(recv.all(), Bytes(kCount * 4, kPoison));
                      EXPECT_TRUE(recv.is_guarded());
                      EXPECT_EQ(send.all(), bytes_of(floats_of(member.rank, kCount)));
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
      on_nccl_ranks(
          kRanks,
          [](NcclRank& member) {
            DeviceBytes send(kCount * 4);
            DeviceBytes recv(kCount * 4);
            CUgraph graph = nullptr;
            CUgraphExec launched = nullptr;
            CUDA_OK(cuStreamBeginCapture(member.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
            NCCL_OK(member.nccl.ncclAllReduce(send.get(), recv.get(), kCount, kFloat32, kSum,
                                              member.comm, member.streams[0]));
            CUDA_OK(cuStreamEndCapture(member.streams[0], &graph));
            CUDA_OK(cuGraphInstantiate(&launched, graph, 0));
            for (unsigned seed = 1; seed < 4; ++seed) {
              send.put(0, bytes_of(floats_of(member.rank, kCount, seed)));
              CUDA_OK(cuGraphLaunch(launched, member.streams[0]));
              expect_sum(member, 33, seed);
              expect_floats(recv.all(), sum_of(kRanks, kCount, seed), "graph", member.rank);
            }
            CUDA_OK(cuGraphExecDestroy(launched));
            CUDA_OK(cuGraphDestroy(graph));
          }),
      Each(""));
  EXPECT_EQ(calls.taken(), kRanks * 4);
}

TEST(Nccl, OperatorsOfTheProgramAreNccls) {
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(
      on_nccl_ranks(2,
                    [](NcclRank& member) {
                      int op = 0;
                      float scalar = 1;
                      NCCL_OK(member.nccl.ncclRedOpCreatePreMulSum(&op, &scalar, kFloat32, 1,
                                                                   member.comm));
                      DeviceBytes buffer(40);
                      buffer.put(0, bytes_of(floats_of(member.rank, 10)));
                      NCCL_OK(member.nccl.ncclAllReduce(buffer.get(), buffer.get(), 10, kFloat32,
                                                        op, member.comm, member.streams[0]));
                      member.synchronize();
                      expect_floats(buffer.all(), sum_of(2, 10), "operator", member.rank);
                    }),
      Each(""));
  EXPECT_EQ(calls.taken(), 0);
  EXPECT_EQ(calls.by_nccl(), 2);
}

/// Many communicators, one after another, by threads that do not wait for each other.
TEST(Nccl, CommunicatorsComeAndGo) {
  for (int time = 0; time < 5; ++time)
    EXPECT_THAT(on_nccl_ranks(2,
                              [](NcclRank& member) {
                                expect_sum(member, 100, 1);
                                int error = -1;
                                NCCL_OK(member.nccl.ncclCommGetAsyncError(member.comm, &error));
                                EXPECT_EQ(error, 0);
                                NCCL_OK(member.nccl.ncclCommFinalize(member.comm));
                              }),
                Each(""));
}

/// A rank aborts: the others' kernels end, and the error is NCCL's.
TEST(Nccl, AbortEndsTheWaitsOfAllRanks) {
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& member) {
                              DeviceBytes buffer(4000);
                              if (member.rank == 0) {
                                // It may come when the other one has gone.
                                int error = member.nccl.ncclAllReduce(
                                    buffer.get(), buffer.get(), 1000, kFloat32, kSum, member.comm,
                                    member.streams[0]);
                                while (error == 0) {
                                  NCCL_OK(member.nccl.ncclCommGetAsyncError(member.comm, &error));
                                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                }
                                EXPECT_EQ(error, 6);  // ncclRemoteError
                              }
                              NCCL_OK(member.nccl.ncclCommAbort(member.comm));
                              member.comm = nullptr;
                              member.synchronize();  // its kernel has the buffer until then
                            }),
              Each(""));
}

/// What NCCL does by functions of its own that stand in here, too.
TEST(Nccl, CallsOfNcclsOwnAreNotTakenTwice) {
  const CountsOf bcasts("ncclBcast");
  const CountsOf broadcasts("ncclBroadcast");
  const auto not_measured = [] {
    const nlohmann::json calls = nccl_report()["calls"];
    return calls.contains("ncclBroadcast")
               ? calls["ncclBroadcast"]["to_nccl"]["not measured"].get<int>()
               : 0;
  };
  const int before = not_measured();
  EXPECT_THAT(on_nccl_ranks(2,
                            [](NcclRank& member) {
                              DeviceBytes buffer(44);
                              buffer.put(0, bytes_of(floats_of(member.rank, 11)));
                              NCCL_OK(member.nccl.ncclBcast(buffer.get(), 11, kFloat32, 1,
                                                            member.comm, member.streams[0]));
                              member.synchronize();
                              EXPECT_EQ(buffer.all(), bytes_of(floats_of(1, 11)));
                            }),
              Each(""));
  EXPECT_EQ(bcasts.by_nccl(), 2);
  // Counted once each, as the broadcast in place that it is.
  EXPECT_EQ(not_measured() - before, 2);
  EXPECT_EQ(broadcasts.taken(), 0);
}

}  // namespace
}  // namespace polypath::test
