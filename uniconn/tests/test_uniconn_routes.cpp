// AnyBackend that follows a table: the suite with messages and collectives that go by polypath and
// by what stands in for NCCL, by size; what went where is counted. Where UNICONN_STANDINS is 0
// there is no library next to polypath.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nccl_standin.h"
#include "polypath/uniconn/backend/any.hpp"
#include "profile_of_test.hpp"
#include "thread_suite.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;
using Backend = uc::AnyBackend;
using uc::BackendUse;

constexpr int kPolypath = POLYPATH_BACKEND_POLYPATH;
constexpr int kGpuccl = POLYPATH_BACKEND_GPUCCL;
constexpr int kGpushmem = POLYPATH_BACKEND_GPUSHMEM;
constexpr int kMpi = POLYPATH_BACKEND_MPI;

/// A profile in which these are the fastest, for 2, 3 and 4 ranks. What stands in for NCCL lets
/// senders wait for receivers.
class Table {
 public:
  struct Row {
    int op;
    std::size_t bytes;
    int backend;
  };
  explicit Table(const std::vector<Row>& rows) {
#if UNICONN_STANDINS
    nccl_standin_sends_wait();
#endif
    const auto engine = uc::detail::engine();
    for (const int ranks : {2, 3, 4})
      for (const Row& row : rows) {
        std::vector<std::pair<int, double>> us{{kPolypath, 20}};
        if (row.backend != kPolypath) us.emplace_back(row.backend, 10);
        ProfileOfTest::keep(engine.get(), row.op, ranks, row.bytes, us);
      }
  }

 private:
  ProfileOfTest profile_;
};

#if UNICONN_STANDINS

const std::vector<Table::Row>& mixed_rows() {
  static const std::vector<Table::Row> rows{
      {POLYPATH_COMM_POST, 4096, kGpuccl},       {POLYPATH_COMM_POST, 65536, kPolypath},
      {POLYPATH_COMM_POST, 300'000, kGpuccl},    {POLYPATH_COMM_POST, 4 << 20, kPolypath},
      {POLYPATH_COMM_ALLREDUCE, 32, kGpuccl},    {POLYPATH_COMM_ALLREDUCE, 128, kPolypath},
      {POLYPATH_COMM_ALLREDUCE, 4096, kGpuccl},  {POLYPATH_COMM_REDUCE, 512, kGpuccl},
      {POLYPATH_COMM_ALL_GATHER, 64, kGpuccl},   {POLYPATH_COMM_ALL_GATHER, 8192, kGpuccl},
      {POLYPATH_COMM_ALL_TO_ALL, 4096, kGpuccl},  // which composes it: polypath has it itself
      {POLYPATH_COMM_BROADCAST, 32, kGpuccl},    {POLYPATH_COMM_BROADCAST, 128 << 10, kGpuccl},
  };
  return rows;
}

/// Calls and bytes of an operation by a backend.
BackendUse use_of(const std::vector<BackendUse>& all, const std::string& operation,
                  const std::string& backend) {
  for (const BackendUse& use : all)
    if (use.operation == operation && use.backend == backend) return use;
  return {operation, backend};
}

using Parameter = std::tuple<SuiteCase<Backend>, int>;

class UniconnRoutes : public testing::TestWithParam<Parameter> {};
TEST_P(UniconnRoutes, Case) {
  const auto& [suite_case, ranks] = GetParam();
  if (gpus() < ranks) GTEST_SKIP() << "needs " << ranks << " GPUs";
  const Table table(mixed_rows());
  std::mutex mutex;
  std::vector<BackendUse> uses;
  EXPECT_THAT(on_ranks<Backend>(ranks,
                                [&](SuiteRank<Backend>& self) {
                                  SUITE_EXPECT(self.env.BackendName() == "polypath",
                                               self.env.BackendName());
                                  self.posts_may_wait = true;
                                  suite_case.run(self);
                                  const std::lock_guard lock(mutex);
                                  for (BackendUse& use : self.env.BackendUses())
                                    uses.push_back(std::move(use));
                                }),
              Each(""));
  // What of the case goes by NCCL, and what by polypath.
  const auto calls = [&uses](const char* operation, const char* backend) {
    std::uint64_t sum = 0;
    for (const BackendUse& use : uses)
      if (use.operation == operation && use.backend == backend) sum += use.calls;
    return sum;
  };
  EXPECT_EQ(calls("post", "gpuccl"), calls("acknowledge", "gpuccl"));
  const std::string name = suite_case.name;
  const auto both = [&](const char* operation) {
    EXPECT_GT(calls(operation, "gpuccl"), 0u) << operation;
    EXPECT_GT(calls(operation, "polypath"), 0u) << operation;
  };
  if (name == "PostsInAGroup") both("post");
  if (name == "PostsAlone" || name == "PostsToItself") {
    EXPECT_GT(calls("post", "gpuccl"), 0u);
    EXPECT_EQ(calls("post", "polypath"), 0u);
  }
  if (name == "AllGathers") both("all_gather");
  if (name == "Broadcasts") both("broadcast");
  if (name == "Reductions") both("allreduce");
  if (name == "AlltoAlls") {
    EXPECT_EQ(calls("all_to_all", "gpuccl"), 0u);
    EXPECT_GT(calls("all_to_all", "polypath"), 0u);
  }
}
INSTANTIATE_TEST_SUITE_P(Table, UniconnRoutes,
                         testing::Combine(testing::ValuesIn(suite<Backend>()),
                                          testing::Values(2, 4)),
                         [](const auto& test_info) {
                           return std::string(std::get<0>(test_info.param).name) + "On" +
                                  std::to_string(std::get<1>(test_info.param));
                         });

/// One group with messages of both, to both neighbours, whose order differs from rank to rank; the
/// stream overwrites the sources after it.
TEST(UniconnRoutesOf, GroupUsesBothBackends) {
  if (gpus() < 4) GTEST_SKIP() << "needs 4 GPUs";
  const Table table(mixed_rows());
  constexpr std::size_t kKinds = 4;
  constexpr std::array<std::size_t, kKinds> kSizes{40, 4000, 50'000, 290'000};
  const auto failures = on_ranks<Backend>(4, [&](SuiteRank<Backend>& self) {
    const int next = (self.rank() + 1) % 4;
    const int last = (self.rank() + 3) % 4;
    uc::Coordinator<Backend> coordinator(self.gpu.stream);
    Buffer<Backend> words(self.gpu, 8 * kKinds);
    words.put(0, Bytes(8 * kKinds));
    Buffer<Backend> source(self.gpu, 400'000);
    Buffer<Backend> inbox(self.gpu, 400'000);
    for (std::uint64_t round = 1; round <= 5; ++round) {
      source.put(0, self.content(self.rank(), round, 400'000));
      inbox.poison();
      self.comm.Barrier(self.gpu.stream);
      coordinator.CommStart();
      std::vector<std::size_t> places(kKinds);
      std::size_t at = 0;
      for (std::size_t i = 0; i < kKinds; ++i) {
        places[i] = at;
        at += kSizes[i] + 8;
      }
      for (std::size_t i = 0; i < kKinds; ++i) {
        // Posts of a rank are acknowledged in their order; ranks turn the row by their number.
        const std::size_t sent = (i + static_cast<std::size_t>(self.rank())) % kKinds;
        const std::size_t received = (i + static_cast<std::size_t>(last)) % kKinds;
        auto* const word = words.get<std::uint64_t>();
        coordinator.Post(source.get<char>(places[sent]), inbox.get<char>(places[sent]),
                         kSizes[sent], word + sent, round, next, &self.comm);
        coordinator.Acknowledge(inbox.get<char>(places[received]), kSizes[received],
                                word + received, round, last, &self.comm);
      }
      coordinator.CommEnd();
      self.gpu.fill(source.get(), 0xEE, 400'000);
      coordinator.WaitComm();
      const Bytes sent = self.content(last, round, 400'000);
      for (std::size_t i = 0; i < kKinds; ++i) {
        const auto begin = sent.begin() + static_cast<std::ptrdiff_t>(places[i]);
        inbox.note(places[i], Bytes(begin, begin + static_cast<std::ptrdiff_t>(kSizes[i])));
      }
      inbox.expect_image("one group");
      self.comm.Barrier(self.gpu.stream);
      coordinator.WaitComm();
    }
    const auto uses = self.env.BackendUses();
    for (const char* const operation : {"post", "acknowledge"}) {
      SUITE_EXPECT((use_of(uses, operation, "gpuccl") ==
                    BackendUse{operation, "gpuccl", 10, 5 * (4000 + 290'000)}),
                   operation);
      SUITE_EXPECT((use_of(uses, operation, "polypath") ==
                    BackendUse{operation, "polypath", 10, 5 * (40 + 50'000)}),
                   operation);
    }
  });
  EXPECT_THAT(failures, Each(""));
}

/// A rank that has in two groups what another has in one, in either direction.
TEST(UniconnRoutesOf, NothingOfAGroupWaitsForAnotherPart) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const Table table(mixed_rows());
  const auto failures = on_ranks<Backend>(2, [&](SuiteRank<Backend>& self) {
    uc::Coordinator<Backend> coordinator(self.gpu.stream);
    Buffer<Backend> words(self.gpu, 16);
    words.put(0, Bytes(16));
    Buffer<Backend> source(self.gpu, 300'100);
    Buffer<Backend> inbox(self.gpu, 300'100);
    source.put(0, self.content(self.rank(), 1, 300'100));
    self.comm.Barrier(self.gpu.stream);
    auto* const word = words.get<std::uint64_t>();
    if (self.rank() == 0) {
      coordinator.CommStart();
      coordinator.Post(source.get<char>(), inbox.get<char>(), 300'000, word, 1, 1, &self.comm);
      coordinator.Post(source.get<char>(300'000), inbox.get<char>(300'000), 100, word + 1, 1, 1,
                       &self.comm);
      coordinator.CommEnd();
    } else {
      coordinator.Acknowledge(inbox.get<char>(300'000), 100, word + 1, 1, 0, &self.comm);
      coordinator.WaitComm();
      coordinator.Acknowledge(inbox.get<char>(), 300'000, word, 1, 0, &self.comm);
    }
    coordinator.WaitComm();
    if (self.rank() == 1) inbox.note(0, self.content(0, 1, 300'100));
    inbox.expect_image("in two parts");
    self.comm.Barrier(self.gpu.stream);
    if (self.rank() == 0) {
      coordinator.CommStart();
      coordinator.Acknowledge(inbox.get<char>(300'000), 100, word + 1, 2, 1, &self.comm);
      coordinator.Post(source.get<char>(), inbox.get<char>(), 300'000, word, 2, 1, &self.comm);
      coordinator.CommEnd();
    } else {
      inbox.poison();
      coordinator.Acknowledge(inbox.get<char>(), 300'000, word, 2, 0, &self.comm);
      coordinator.Post(source.get<char>(300'000), inbox.get<char>(300'000), 100, word + 1, 2, 0,
                       &self.comm);
    }
    coordinator.WaitComm();
    if (self.rank() == 1) {
      const Bytes received = self.content(0, 1, 300'100);
      inbox.note(0, Bytes(received.begin(), received.begin() + 300'000));
    } else {
      const Bytes received = self.content(1, 1, 300'100);
      inbox.note(300'000, Bytes(received.begin() + 300'000, received.end()));
    }
    inbox.expect_image("of two parts");
    self.comm.Barrier(self.gpu.stream);
    coordinator.WaitComm();
  });
  EXPECT_THAT(failures, Each(""));
}

/// Only the host tells of a kernel's data: both sides by polypath, at any size.
TEST(UniconnRoutesOf, PartialDevice_SignalsByPolypath) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const Table table(mixed_rows());
  const auto failures = on_ranks<Backend>(2, [&](SuiteRank<Backend>& self) {
    uc::Coordinator<Backend, uc::LaunchMode::PartialDevice> coordinator(self.gpu.stream);
    Buffer<Backend> words(self.gpu, 8);
    words.put(0, Bytes(8));
    Buffer<Backend> inbox(self.gpu, 4096);
    self.comm.Barrier(self.gpu.stream);
    const int other = 1 - self.rank();
    coordinator.CommStart();
    coordinator.Post(inbox.get<char>(), inbox.get<char>(), 4096, words.get<std::uint64_t>(), 1,
                     other, &self.comm);
    coordinator.Acknowledge(inbox.get<char>(), 4096, words.get<std::uint64_t>(), 1, other,
                            &self.comm);
    coordinator.CommEnd();
    coordinator.WaitComm();
    SUITE_EXPECT(
        (self.env.BackendUses() ==
         std::vector<BackendUse>{{"post", "polypath", 1, 0}, {"acknowledge", "polypath", 1, 0}}),
        "");
    self.comm.Barrier(self.gpu.stream);
    coordinator.WaitComm();
  });
  EXPECT_THAT(failures, Each(""));
}

/// Parts have the rows of their own ranks: two of them by NCCL, three by polypath.
TEST(UniconnRoutesOf, PartsHaveRowsOfTheirOwn) {
  if (gpus() < 4) GTEST_SKIP() << "needs 4 GPUs";
  ProfileOfTest profile;
  const auto engine = uc::detail::engine();
  ProfileOfTest::keep(engine.get(), POLYPATH_COMM_BROADCAST, 2, 1000,
                      {{kPolypath, 9}, {kGpuccl, 5}});
  ProfileOfTest::keep(engine.get(), POLYPATH_COMM_BROADCAST, 3, 1000,
                      {{kPolypath, 5}, {kGpuccl, 9}});
  const auto failures = on_ranks<Backend>(4, [&](SuiteRank<Backend>& self) {
    for (const int of_first : {2, 3, 4}) {
      // The parts' order is not that of the ranks.
      auto part = self.comm.Split(self.rank() < of_first ? 0 : -1, -self.rank());
      SUITE_EXPECT(static_cast<bool>(part) == (self.rank() < of_first), "");
      if (!part) continue;
      const auto before = self.env.BackendUses();
      uc::Coordinator<Backend> coordinator(self.gpu.stream);
      uc::detail::DevicePointer plain_memory = 0;  // that a part alone has
      self.gpu.cuda.check(self.gpu.cuda.alloc(&plain_memory, 1000), "cuMemAlloc");
      auto* const memory = reinterpret_cast<std::byte*>(plain_memory);
      self.gpu.write(memory, self.content(self.rank(), 7, 1000));
      coordinator.Broadcast(memory, 1000, 0, &part);
      coordinator.WaitComm();
      SUITE_EXPECT(self.gpu.read(memory, 1000) == self.content(of_first - 1, 7, 1000), "broadcast");
      const char* const by = of_first == 2 ? "gpuccl" : "polypath";
      SUITE_EXPECT(use_of(self.env.BackendUses(), "broadcast", by).calls ==
                       use_of(before, "broadcast", by).calls + 1,
                   by);
      self.gpu.cuda.check(self.gpu.cuda.free(plain_memory), "cuMemFree");
    }
  });
  EXPECT_THAT(failures, Each(""));
}

#endif

/// What it says, and where posts of 4096 bytes went, on each of two ranks.
std::vector<std::string> said_and_done(const std::string& by) {
  std::vector<std::string> reasons(2);
  const auto failures = on_ranks<Backend>(2, [&](SuiteRank<Backend>& self) {
    self.posts_may_wait = true;
    posts_to_itself(self);
    SUITE_EXPECT((self.env.BackendUses() ==
                  std::vector<BackendUse>{{"post", by, 1, 5000}, {"acknowledge", by, 1, 5000}}),
                 self.env.BackendReason());
    reasons[static_cast<std::size_t>(self.rank())] = self.env.BackendReason();
  });
  EXPECT_THAT(failures, Each(""));
  return reasons;
}

constexpr const char* kWhyPolypath =
    "polypath: ranks are of one node, and reach each other's memory";

TEST(UniconnRoutesOf, NoTable_UsesPolypath) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  EXPECT_THAT(said_and_done("polypath"), Each(kWhyPolypath));
}

TEST(UniconnRoutesOf, MissingBackend_IsSkippedAndReported) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  {
    const Table table({{POLYPATH_COMM_POST, 4096, kMpi}});
    // Three rows: of 2, 3 and 4 ranks; those of parts count as well.
    EXPECT_THAT(said_and_done("polypath"),
                Each(AllOf(HasSubstr(std::string(kWhyPolypath) +
                                     "; passes over 1 row of the table for mpi (rank 0: "),
                           HasSubstr("no code for it"))));
  }
  const Table table({{POLYPATH_COMM_POST, 4096, kGpushmem}});
  EXPECT_THAT(said_and_done("polypath"),
              Each(AllOf(HasSubstr("; passes over 1 row of the table for gpushmem ("),
                         HasSubstr(UNICONN_STANDINS ? "memory of its own" : "libnvshmem_host"))));
}

TEST(UniconnRoutesOf, LibraryOfTable_IsUsedIfPresent) {
  if (gpus() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const bool is_here = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) != nullptr;
  const Table table({{POLYPATH_COMM_POST, 4096, kGpuccl}});
  EXPECT_THAT(said_and_done(is_here ? "gpuccl" : "polypath"),
              Each(is_here ? HasSubstr("; follows 1 row of the table for gpuccl")
                           : HasSubstr("; passes over 1 row of the table for gpuccl (rank 0: "
                                       "GpucclBackend: there is no libnccl.so.2")));
  setenv("POLYPATH_BACKEND", "Auto", 1);
  EXPECT_THAT(said_and_done(is_here ? "gpuccl" : "polypath"),
              Each(HasSubstr("1 row of the table for gpuccl")));
  setenv("POLYPATH_BACKEND", "polypath", 1);
  EXPECT_THAT(said_and_done("polypath"), Each("polypath: POLYPATH_BACKEND says so"));
  unsetenv("POLYPATH_BACKEND");
}

}  // namespace
}  // namespace polypath::test
