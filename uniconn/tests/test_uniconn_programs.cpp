// What is polypath's backend's own: routes, modes, groups that go over all links, failures, ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "polypath_sim.h"
#include "thread_suite.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using Backend = uc::PolypathBackend;

bool in_virtual_time() {
  const char* const mode = std::getenv("POLYPATH_SIM_MODE");
  return mode == nullptr || std::string(mode) == "virtual";
}

/// One dimension of Listing 4: cells of each rank, halos by Post; a kernel that the host stands in
/// for, in order on the stream.
template <uc::LaunchMode M>
std::vector<double> jacobi(SuiteRank<Backend>& self, std::size_t cells, int iterations) {
  const int top = (self.rank() + self.size() - 1) % self.size();
  const int bottom = (self.rank() + 1) % self.size();
  auto* edges = uc::Memory<Backend>::Alloc<double>(2);  // that go: first, last
  auto* halos = uc::Memory<Backend>::Alloc<double>(2);
  auto* halos_new = uc::Memory<Backend>::Alloc<double>(2);
  auto* words = uc::Memory<Backend>::Alloc<std::uint64_t>(2);
  std::vector<double> own_cells(cells);
  for (std::size_t i = 0; i < cells; ++i)
    own_cells[i] = static_cast<double>((static_cast<std::size_t>(self.rank()) * cells + i) % 17);
  uc::Coordinator<Backend, M> step(self.gpu.stream);
  bool is_first = true;
  step.template BindKernel<M>([&](uc::Stream) {
    if (!is_first) {
      const Bytes got = self.gpu.read(halos, 16);
      std::array<double, 2> outside{};
      std::memcpy(outside.data(), got.data(), 16);
      std::vector<double> next(cells);
      for (std::size_t i = 0; i < cells; ++i)
        next[i] = 0.5 * ((i == 0 ? outside[0] : own_cells[i - 1]) +
                         (i + 1 == cells ? outside[1] : own_cells[i + 1]));
      own_cells = next;
    }
    is_first = false;
    Bytes to_go(16);
    std::memcpy(to_go.data(), &own_cells.front(), 8);
    std::memcpy(to_go.data() + 8, &own_cells.back(), 8);
    self.gpu.write(edges, to_go);
  });
  step.template BindKernel<uc::LaunchMode::PureDevice>([](uc::Stream) { ADD_FAILURE(); });
  self.comm.Barrier(self.gpu.stream);
  for (int iteration = 0; iteration <= iterations; ++iteration) {
    const auto value = static_cast<std::uint64_t>(iteration + 1);
    step.LaunchKernel();
    step.CommStart();
    step.Post(edges, halos_new + 1, 1, words + 1, value, top, &self.comm);
    step.Post(edges + 1, halos_new, 1, words, value, bottom, &self.comm);
    step.Acknowledge(halos_new, 1, words, value, top, &self.comm);
    step.Acknowledge(halos_new + 1, 1, words + 1, value, bottom, &self.comm);
    step.CommEnd();
    std::swap(halos, halos_new);
  }
  self.comm.Barrier(self.gpu.stream);
  step.WaitComm();
  for (auto* const each : {edges, halos, halos_new}) uc::Memory<Backend>::Free(each);
  uc::Memory<Backend>::Free(words);
  return own_cells;
}

TEST(UniconnPrograms, JacobiIsTheSequentialOne) {
  constexpr std::size_t kCells = 24;
  constexpr int kIterations = 20;
  std::vector<double> all(4 * kCells);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i % 17);
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    std::vector<double> next(all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      next[i] = 0.5 * (all[(i + all.size() - 1) % all.size()] + all[(i + 1) % all.size()]);
    all = next;
  }
  EXPECT_THAT(
      on_ranks<Backend>(4,
                        [&](SuiteRank<Backend>& self) {
                          const auto own_cells =
                              jacobi<uc::LaunchMode::PureHost>(self, kCells, kIterations);
                          const auto from = all.begin() + self.rank() * static_cast<long>(kCells);
                          SUITE_EXPECT(std::equal(own_cells.begin(), own_cells.end(), from), "");
                        }),
      Each(""));
}

/// PartialDevice: the host tells of what a kernel sent; PureDevice: it says nothing.
TEST(UniconnPrograms, LaunchModeDecidesWhatTheHostSends) {
  const auto body = [](SuiteRank<Backend>& self) {
    const int next = (self.rank() + 1) % self.size();
    const int last = (self.rank() + self.size() - 1) % self.size();
    Buffer<Backend> source(self.gpu, 64);
    Buffer<Backend> inbox(self.gpu, 64);
    Buffer<Backend> words(self.gpu, 8);
    words.put(0, Bytes(8));
    source.put(0, self.content(self.rank(), 1, 64));
    self.comm.Barrier(self.gpu.stream);
    auto* const word = words.template get<std::uint64_t>();
    const auto exchange = [&](auto& coordinator) {
      coordinator.CommStart();
      coordinator.Post(source.get(), inbox.get(), 64, word, 9, next, &self.comm);
      coordinator.Acknowledge(inbox.get(), 64, word, 9, last, &self.comm);
      coordinator.CommEnd();
      coordinator.WaitComm();
      self.comm.Barrier(self.gpu.stream);
      coordinator.WaitComm();
    };
    uc::Coordinator<Backend, uc::LaunchMode::PureDevice> pure(self.gpu.stream);
    exchange(pure);
    inbox.expect_image("PureDevice");
    words.expect_image("PureDevice");
    self.comm.Barrier(self.gpu.stream);
    uc::Coordinator<Backend, uc::LaunchMode::PartialDevice> partial(self.gpu.stream);
    exchange(partial);
    Bytes nine(8);
    nine[0] = std::byte{9};
    words.note(0, nine);
    inbox.expect_image("PartialDevice");
    words.expect_image("PartialDevice");
    // Collectives are the host's in that mode.
    Buffer<Backend> all(self.gpu, 64 * 3);
    partial.AllGather(source.get(), all.get(), 64, &self.comm);
    partial.WaitComm();
    for (int r = 0; r < 3; ++r) all.note(64 * static_cast<std::size_t>(r), self.content(r, 1, 64));
    all.expect_image("AllGather in PartialDevice");
  };
  EXPECT_THAT(on_ranks<Backend>(3, body), Each(""));
}

/// A halo exchange with large halos goes over links that a single path leaves idle.
TEST(UniconnPrograms, GroupUsesAllRoutes) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  std::uint64_t by_another = 0;
  const auto body = [&](SuiteRank<Backend>& self) {
    const polypath_transfer_request requests[]{{"gpu0", "gpu1", kBytes}, {"gpu0", "gpu2", kBytes}};
    if (self.rank() == 0)
      polypath::detail::check(polypath_prepare(uc::detail::engine().get(), requests, 2));
    auto* const source = uc::Memory<Backend>::Alloc<std::byte>(kBytes);
    auto* const inbox = uc::Memory<Backend>::Alloc<std::byte>(kBytes);
    auto* const word = uc::Memory<Backend>::Alloc<std::uint64_t>(1);
    uc::Coordinator<Backend> coordinator(self.gpu.stream);
    self.comm.Barrier(self.gpu.stream);
    coordinator.WaitComm();
    if (self.rank() == 0) {
      polypath_sim_reset_counters();
      coordinator.CommStart();
      for (const int to : {1, 2}) coordinator.Post(source, inbox, kBytes, word, 1, to, &self.comm);
      coordinator.CommEnd();
      coordinator.WaitComm();
      by_another = polypath_sim_link_bytes("gpu0", "gpu3");
    }
    self.comm.Barrier(self.gpu.stream);
    coordinator.WaitComm();
    uc::Memory<Backend>::Free(source);
    uc::Memory<Backend>::Free(inbox);
    uc::Memory<Backend>::Free(word);
  };
  EXPECT_THAT(on_ranks<Backend>(4, body), Each(""));
  // Rank 3 is sent nothing: a part of both messages goes by way of its GPU. That they go at once is
  // timed in comm.api, by one thread.
  EXPECT_GT(by_another, kBytes / 4);
}

TEST(UniconnPrograms, FailedRank_EndsAllWaits) {
  if (in_virtual_time()) GTEST_SKIP() << "a time limit in virtual time takes long";
  setenv("POLYPATH_COMM_TIMEOUT_MS", "5000", 1);  // of the creation too, on a busy machine
  const auto failures = on_ranks<Backend>(2, [](SuiteRank<Backend>& self) {
    auto* const word = uc::Memory<Backend>::Alloc<std::uint64_t>(1);
    uc::Coordinator<Backend> coordinator(self.gpu.stream);
    if (self.rank() == 1) throw std::runtime_error("it is gone");
    coordinator.Acknowledge(word, 0, word, 1, 1, &self.comm);
    coordinator.WaitComm();
    self.comm.Barrier(self.gpu.stream);
    coordinator.WaitComm();
  });
  unsetenv("POLYPATH_COMM_TIMEOUT_MS");
  EXPECT_THAT(failures[0], HasSubstr("unusable"));
  EXPECT_THAT(failures[1], HasSubstr("it is gone"));
}

/// While a stream waits for what never comes: no hang, and the other ranks are told.
TEST(UniconnPrograms, DestroyedInFlight) {
  const auto failures = on_ranks<Backend>(2, [](SuiteRank<Backend>& self) {
    auto* const word = uc::Memory<Backend>::Alloc<std::uint64_t>(1);
    uc::Coordinator<Backend> coordinator(self.gpu.stream);
    coordinator.Acknowledge(word, 0, word, 1, 1 - self.rank(), &self.comm);
    // Rank 0 ends here; rank 1 waits for it.
    if (self.rank() == 1) coordinator.WaitComm();
  });
  EXPECT_EQ(failures[0], "");
  EXPECT_THAT(failures[1], HasSubstr("unusable"));
}

TEST(UniconnPrograms, NothingWithoutAnEnvironment) {
  EXPECT_THROW(uc::Communicator<Backend>{}, polypath::error);
  EXPECT_THROW(uc::Coordinator<Backend>{nullptr}, polypath::error);
  EXPECT_THROW(static_cast<void>(uc::Memory<Backend>::Alloc<int>(1)), polypath::error);
  for (const char* const name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    unsetenv(name);
  {
    // One rank alone, and before SetDevice.
    uc::Environment<Backend> env;
    EXPECT_EQ(env.WorldSize(), 1);
    EXPECT_FALSE(env.IsInit());
    EXPECT_THROW(uc::Communicator<Backend>{}, polypath::error);
    EXPECT_THROW(env.SetDevice(99), polypath::error);
    EXPECT_THROW(env.SetDevice(-1), polypath::error);
    env.SetDevice(1);
    EXPECT_TRUE(env.IsInit());
    uc::Communicator<Backend> comm;
    EXPECT_EQ(comm.GlobalSize(), 1);
    EXPECT_NE(comm.toDevice(), nullptr);
  }
  {
    // Another one, once that is gone; but not while a part of it lives.
    auto env = std::make_unique<uc::Environment<Backend>>();
    env->SetDevice(0);
    auto comm = std::make_unique<uc::Communicator<Backend>>();
    env.reset();
    EXPECT_THROW(uc::Environment<Backend>{}, polypath::error);
    comm.reset();
    EXPECT_NO_THROW(uc::Environment<Backend>{});
  }
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  try {
    uc::Environment<Backend> env;
    ADD_FAILURE();
  } catch (const polypath::error& error) {
    EXPECT_THAT(error.what(), HasSubstr("mpi_bootstrap"));
  }
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

TEST(UniconnPrograms, RankWithoutGpu_EndsAll) {
  const auto bootstraps = uc::Bootstrap::threads(2);
  std::vector<std::string> errors(2);
  {
    std::vector<std::jthread> threads;
    for (const std::size_t rank : {0U, 1U})
      threads.emplace_back([&, rank] {
        uc::Environment<Backend> env(bootstraps[rank]);
        try {
          env.SetDevice(rank == 0 ? 0 : 99);
        } catch (const polypath::error& error) {
          errors[rank] = error.what();
        }
      });
  }
  EXPECT_THAT(errors[0], HasSubstr("rank 1 has no GPU"));
  EXPECT_THAT(errors[1], HasSubstr("no GPU 99"));
}

/// 40 streams that wait for words do not block the streams that write them.
TEST(UniconnPrograms, FortyStreamsMayWait) {
  EXPECT_THAT(
      on_ranks<Backend>(
          2,
          [](SuiteRank<Backend>& self) {
            constexpr std::size_t kStreams = 40;
            auto* const words = uc::Memory<Backend>::Alloc<std::uint64_t>(kStreams);
            std::vector<std::unique_ptr<Gpu>> gpus;
            std::vector<std::unique_ptr<uc::Coordinator<Backend>>> all;
            for (std::size_t i = 0; i < kStreams; ++i) {
              gpus.push_back(std::make_unique<Gpu>());
              all.push_back(std::make_unique<uc::Coordinator<Backend>>(gpus.back()->stream));
              all.back()->Acknowledge(words + i, 0, words + i, 1, 1 - self.rank(), &self.comm);
            }
            uc::Coordinator<Backend> last(self.gpu.stream);
            for (std::size_t i = kStreams; i-- > 0;)
              last.Post(words + i, words + i, 0, words + i, 1, 1 - self.rank(), &self.comm);
            for (const auto& each : all) each->WaitComm();
            self.comm.Barrier(self.gpu.stream);
            last.WaitComm();
            uc::Memory<Backend>::Free(words);
          }),
      Each(""));
}

}  // namespace
}  // namespace polypath::test
