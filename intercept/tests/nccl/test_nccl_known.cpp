// Which communicators are known: programs that make and destroy them for days have as many as they
// like, one after another, and what lives stays known meanwhile.
#include <gmock/gmock.h>

#include <atomic>
#include <deque>

#include "nccl_sums.hpp"

namespace polypath::test {
namespace {

using testing::Each;

// The library knows this many at once; what stands in for NCCL gives each an address of its own.
constexpr int kPlaces = 4096;

/// One rank: NCCL's alone, and known for its parts and for what is promised.
void* make_one() {
  const NcclApi& nccl = NcclApi::get();
  NcclId id{};
  NCCL_OK(nccl.ncclGetUniqueId(&id));
  void* comm = nullptr;
  NCCL_OK(nccl.ncclCommInitRank(&comm, 1, id, 0));
  return comm;
}

int known_communicators() { return nccl_report()["communicators"].get<int>(); }

/// Only parts of those that are known are counted.
void* part_of(void* comm) {
  void* part = nullptr;
  NCCL_OK(NcclApi::get().ncclCommSplit(comm, 0, 0, &part, nullptr));
  return part;
}

void destroy(void* comm) { NCCL_OK(NcclApi::get().ncclCommDestroy(comm)); }

TEST(NcclKnown, AnyNumberOneAfterAnother) {
  use_gpu(0);
  for (int i = 0; i < 2 * kPlaces; ++i) destroy(make_one());
  const CountsOf calls("ncclAllReduce");
  EXPECT_THAT(on_nccl_ranks(2, [](NcclRank& member) { expect_sum(member, 100, 1); }), Each(""));
  EXPECT_EQ(calls.taken(), 2);
  EXPECT_FALSE(nccl_report()["refusals"].contains("too many communicators"));
}

TEST(NcclKnown, LivingCommunicatorsStayKnown) {
  constexpr int kKept = 1500;
  use_gpu(0);
  const int before = known_communicators();
  std::mt19937 random(5);
  std::vector<void*> kept;
  std::vector<void*> others;
  for (int i = 0; i < kKept; ++i) kept.push_back(make_one());
  for (int i = 0; i < 2 * kPlaces; ++i) {
    others.push_back(make_one());
    // Up to 1000 live, and go in any order.
    const std::size_t most = random() % 1000;
    while (others.size() > most) {
      std::swap(others[random() % others.size()], others.back());
      destroy(others.back());
      others.pop_back();
    }
  }
  EXPECT_EQ(known_communicators(), before + kKept + 2 * kPlaces);
  for (void* const comm : others) destroy(comm);
  for (void* const comm : kept) destroy(part_of(comm));
  EXPECT_EQ(known_communicators(), before + 2 * kKept + 2 * kPlaces);
  for (void* const comm : kept) destroy(comm);
}

/// Threads that know nothing of each other; in between the ranks of one communicator call.
TEST(NcclKnown, OthersComeAndGoBesideCalls) {
  constexpr int kThreads = 3;
  constexpr int kSums = 60;
  const CountsOf calls("ncclAllReduce");
  const int before = known_communicators();
  std::atomic<int> created{0};
  std::atomic<int> calling{2};
  std::vector<std::jthread> threads;
  for (unsigned thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      use_gpu(0);
      std::mt19937 random(thread);
      std::deque<void*> handles;
      for (int i = 0; i < kPlaces || calling > 0; ++i) {
        handles.push_back(make_one());
        if (handles.size() < 1 + random() % 200) continue;
        destroy(part_of(handles.front()));
        destroy(handles.front());
        handles.pop_front();
        created += 1;
      }
      created += static_cast<int>(handles.size());
      for (void* const comm : handles) {
        destroy(part_of(comm));
        destroy(comm);
      }
    });
  EXPECT_THAT(on_nccl_ranks(2,
                            [&](NcclRank& member) {
                              for (unsigned i = 0; i < kSums; ++i) expect_sum(member, 100, i);
                              --calling;
                            }),
              Each(""));
  calling = 0;
  threads.clear();  // joins them
  EXPECT_EQ(calls.taken(), 2 * kSums);
  // Each with a part, and the two ranks'.
  EXPECT_EQ(known_communicators(), before + 2 * created + 2);
}

}  // namespace
}  // namespace polypath::test
