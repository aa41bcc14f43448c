// How communicators begin: next to kernels that wait for this process (what stands in for NCCL
// gathers by kernels here), and what each takes of GPUs and of host memory.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <barrier>
#include <memory>
#include <optional>
#include <utility>

#include "nccl_sums.hpp"

namespace polypath::test {
namespace {

using testing::Each;

constexpr std::size_t kMiB = std::size_t{1} << 20;

NcclId new_id() {
  NcclId id{};
  NCCL_OK(NcclApi::get().ncclGetUniqueId(&id));
  return id;
}

/// One that stays NCCL's.
void* made_by_nccl(const NcclRank& member, const NcclId& id) {
  NcclConfig config;
  config.blocking = 0;
  void* comm = nullptr;
  NCCL_OK(member.nccl.ncclCommInitRankConfig(&comm, member.size, id, member.rank, &config));
  return comm;
}

/// Sums of whole numbers, which NCCL and polypath sum alike.
class Sum {
 public:
  Sum(const NcclRank& member, void* comm, CUstream stream) : member_(member) {
    memory_.put(0, bytes_of(std::vector<float>(kCount, static_cast<float>(member.rank + 1))));
    NCCL_OK(member.nccl.ncclAllReduce(memory_.get(), memory_.get(), kCount, kFloat32, kSum, comm,
                                      stream));
  }
  void expect() const {
    member_.synchronize();
    const auto sum = static_cast<float>(member_.size * (member_.size + 1)) / 2;
    expect_floats(memory_.all(), bytes_of(std::vector<float>(kCount, sum)), "sum", member_.rank);
    EXPECT_TRUE(memory_.is_guarded());
  }

 private:
  static constexpr std::size_t kCount = 1001;
  const NcclRank& member_;
  DeviceBytes memory_{kCount * 4};
};

/// Rank 0 sums by NCCL and then makes another communicator, rank 1 the other way round.
TEST(NcclStart, CommunicatorBehindAHeldSum) {
  const NcclId first = new_id();
  const NcclId second = new_id();
  std::barrier issued(2);
  const auto body = [&](NcclRank& member) {
    void* const by_nccl = made_by_nccl(member, first);
    const auto make = [&] {
      NCCL_OK(member.nccl.ncclCommInitRank(&member.comm, 2, second, member.rank));
    };
    std::optional<Sum> sum;
    if (member.rank == 0) sum.emplace(member, by_nccl, member.streams[0]);
    issued.arrive_and_wait();
    make();
    if (member.rank == 1) sum.emplace(member, by_nccl, member.streams[0]);
    sum->expect();
    expect_sum(member, 901, 1, 1);
    NCCL_OK(member.nccl.ncclCommDestroy(by_nccl));
  };
  EXPECT_THAT(on_nccl_ranks(2, body, [](NcclRank&, const NcclId&) {}), Each(""));
}

/// Both of its ranks by one thread.
TEST(NcclStart, TwoOfOneThreadInAGroup) {
  const NcclApi& nccl = NcclApi::get();
  for (int round = 0; round < 5; ++round) {
    const CountsOf calls("ncclAllReduce");
    const std::array<NcclId, 2> ids{new_id(), new_id()};
    std::array<NcclRank, 4> ranks;
    NCCL_OK(nccl.ncclGroupStart());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      NcclRank& member = ranks.at(i);
      member.rank = static_cast<int>(i / 2);
      member.size = 2;
      use_gpu(member.rank);
      CUDA_OK(cuStreamCreate(member.streams.data(), CU_STREAM_NON_BLOCKING));
      CUDA_OK(cuStreamCreate(&member.streams[1], CU_STREAM_NON_BLOCKING));
      NCCL_OK(nccl.ncclCommInitRank(&member.comm, 2, ids.at(i % 2), member.rank));
    }
    NCCL_OK(nccl.ncclGroupEnd());
    std::array<std::optional<Sum>, 4> sums;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      use_gpu(ranks.at(i).rank);
      sums.at(i).emplace(ranks.at(i), ranks.at(i).comm, ranks.at(i).streams[0]);
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      use_gpu(ranks.at(i).rank);
      sums.at(i)->expect();
      sums.at(i).reset();
      NCCL_OK(nccl.ncclCommDestroy(ranks.at(i).comm));
    }
    EXPECT_EQ(calls.taken(), 4);
  }
}

/// The ranks name them in different orders.
TEST(NcclStart, ThreeInAGroup) {
  const CountsOf calls("ncclAllReduce");
  const std::array<NcclId, 3> ids{new_id(), new_id(), new_id()};
  const auto body = [&](NcclRank& member) {
    std::array<void*, 3> comms{};
    NCCL_OK(member.nccl.ncclGroupStart());
    for (std::size_t i = 0; i < comms.size(); ++i) {
      const std::size_t at = member.rank == 0 ? i : comms.size() - 1 - i;
      NCCL_OK(member.nccl.ncclCommInitRank(&comms.at(at), 2, ids.at(at), member.rank));
    }
    NCCL_OK(member.nccl.ncclGroupEnd());
    for (void* const comm : comms) {
      Sum(member, comm, member.streams[0]).expect();
      NCCL_OK(member.nccl.ncclCommDestroy(comm));
    }
  };
  EXPECT_THAT(on_nccl_ranks(2, body, [](NcclRank&, const NcclId&) {}), Each(""));
  EXPECT_EQ(calls.taken(), 6);
}

/// What polypath has asked of the driver so far.
std::size_t count_of(const char* name) {
  void* const driver = dlopen(std::getenv("POLYPATH_DRIVER_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
  const auto count = reinterpret_cast<std::size_t (*)()>(dlsym(driver, name));
  return count != nullptr ? count() : throw std::runtime_error(name);
}
struct Counts {
  std::size_t modules = count_of("polypath_test_modules");
  std::size_t pinned_bytes = count_of("polypath_test_pinned_bytes");
  std::size_t frees = count_of("polypath_test_frees");
};
std::size_t free_memory() {
  std::size_t bytes = 0;
  std::size_t total = 0;
  CUDA_OK(cuMemGetInfo(&bytes, &total));
  return bytes;
}

/// All ranks make a dozen of all, as programs with parallelism of several kinds do.
TEST(NcclStart, LaterCommunicatorsTakeLittle) {
  constexpr int kRanks = 4;
  const CountsOf calls("ncclAllReduce");
  std::array<NcclId, 12> ids{};
  for (NcclId& id : ids) id = new_id();
  std::barrier step(kRanks);
  const auto body = [&](NcclRank& member) {
    const std::size_t before = free_memory();
    step.arrive_and_wait();
    std::array<void*, 12> comms{};
    const auto make = [&](std::size_t i) {
      NCCL_OK(member.nccl.ncclCommInitRank(&comms.at(i), kRanks, ids.at(i), member.rank));
    };
    make(0);
    step.arrive_and_wait();
    const Counts first;
    step.arrive_and_wait();
    // So many find multiprocessors; what was made for others goes again.
    constexpr std::size_t kTaken = 8;
    for (std::size_t i = 1; i < kTaken; ++i) make(i);
    step.arrive_and_wait();
    EXPECT_EQ(Counts().frees, first.frees) << "it waits for kernels";
    step.arrive_and_wait();
    for (std::size_t i = kTaken; i < comms.size(); ++i) make(i);
    step.arrive_and_wait();
    const Counts all;
    EXPECT_EQ(all.modules, first.modules);
    EXPECT_LE(all.pinned_bytes - first.pinned_bytes, std::size_t{11 * kRanks * 4096});
    EXPECT_LE(before - free_memory(), comms.size() * 64 * kMiB) << "GPU " << member.rank;
    step.arrive_and_wait();
    member.comm = comms[1];
    expect_sum(member, 5000, 3);
    member.comm = nullptr;
    for (void* const comm : comms) NCCL_OK(member.nccl.ncclCommDestroy(comm));
  };
  EXPECT_THAT(on_nccl_ranks(kRanks, body, [](NcclRank&, const NcclId&) {}), Each(""));
  EXPECT_EQ(calls.taken(), kRanks);
}

/// Without anything measured, and not in reproducible mode.
TEST(NcclUnmeasured, NothingIsLoadedOrTaken) {
  const auto body = [](NcclRank& member) { Sum(member, member.comm, member.streams[0]).expect(); };
  EXPECT_THAT(on_nccl_ranks(2, body), Each(""));
  EXPECT_EQ(count_of("polypath_test_modules"), 0u);
  const nlohmann::json refusals = nccl_report()["refusals"];
  EXPECT_EQ(refusals["nothing was measured to be faster here"], 2) << refusals;
}

}  // namespace
}  // namespace polypath::test
