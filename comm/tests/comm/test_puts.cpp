// Puts, by a kernel and by copies: what arrives, in which order, and which way it went.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>

#include "base/error.hpp"
#include "base/units.hpp"
#include "core/context.hpp"
#include "group.hpp"
#include "memory.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;

/// The largest that a kernel makes; beyond an NVSwitch copies may go over several paths.
std::uint64_t largest_of_kernel() {
  const Node& node = group_node().node;
  const auto link = node.find_link(MemoryId::gpu(0), MemoryId::gpu(1));
  return link && node.links[static_cast<std::size_t>(*link)].type == LinkType::nvswitch
             ? 4 * kMiB
             : 256 * kKiB;
}
/// The largest that one block makes where it cannot be several.
constexpr std::uint64_t kOfOneBlock = 128 * kKiB;

std::uint64_t seed_of(int rank, std::uint64_t round) {
  return 1000 * round + static_cast<std::uint64_t>(rank) + 1;
}

/// Waits until every rank's host has come.
void meet(Communicator& comm) {
  const std::byte empty{};
  std::vector<std::byte> all(static_cast<std::size_t>(comm.size()));
  comm.exchange({&empty, 1}, all);
}

TEST(Puts, SmallPuts_UseKernelLargerOnesCopies) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const int other = 1 - comm.rank();
    const std::uint64_t small = largest_of_kernel();
    const SymmetricMemory inbox = comm.alloc(small + 64);
    const SymmetricMemory words = comm.alloc(8);
    const Stream stream(driver, comm.context());
    std::uint64_t round = 0;
    PutCounts expected;
    for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{8}, std::uint64_t{4099},
                                      64 * kKiB + 1, small / 3 + 5, small - 1, small, small + 1})
      for (const std::uint64_t shift : {0U, 4U, 13U}) {
        ++round;
        write(driver, inbox.local(), Bytes(small + 64, std::byte{0x5A}));
        const Device out(driver, random_bytes(bytes + shift, seed_of(comm.rank(), round)));
        meet(comm);
        comm.put({other, inbox, 16, out.get() + shift, bytes}, {words, 0, round}, stream.get());
        comm.wait_signal({words, 0, round}, stream.get());
        POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
        Bytes image(small + 64, std::byte{0x5A});
        const Bytes sent = random_bytes(bytes + shift, seed_of(other, round));
        std::copy(sent.begin() + static_cast<std::ptrdiff_t>(shift), sent.end(),
                  image.begin() + 16);
        ASSERT_TRUE(is_same(image, read(driver, inbox.local(), small + 64)))
            << bytes << " bytes, " << shift << " from a whole word";
        ++(bytes <= small ? expected.by_kernel : expected.by_copies);
        meet(comm);
      }
    EXPECT_EQ(expected.by_kernel, comm.put_counts().by_kernel);
    EXPECT_EQ(expected.by_copies, comm.put_counts().by_copies);
  });
}

/// Neither bytes nor words, alone or after copies, need room for a kernel; the wait alone does.
TEST(Puts, WithoutTheKernelAllAreCopies) {
  NEEDS_GPUS(2);
  const auto driver = std::make_shared<CudaDriver>(*group_node().driver);
  static std::atomic<int> launches{0};
  static decltype(driver->launch_kernel) launch = nullptr;
  launches = 0;
  launch = driver->launch_kernel;
  driver->launch_kernel = [](auto... arguments) {
    ++launches;
    return launch(arguments...);
  };
  Group group(2, {.driver = driver, .alter = [](CommunicatorOptions& rank_options) {
                    rank_options.put_kernel_max_bytes = 0;
                  }});
  group.run([](Communicator& comm) {
    const CudaDriver& comm_driver = comm.driver();
    const int other = 1 - comm.rank();
    const SymmetricMemory inbox = comm.alloc(64);
    const SymmetricMemory words = comm.alloc(16);
    const Stream stream(comm_driver, comm.context());
    const Device out(comm_driver, random_bytes(64, seed_of(comm.rank(), 1)));
    const std::array puts{PutWithSignal{{other, inbox, 0, out.get(), 64}, Signal{words, 0, 1}}};
    const std::array signalled_puts{PutWithSignal{{other, inbox}, Signal{words, 8, 1}}};
    const std::array awaited{Signal{words, 0, 1}, Signal{words, 8, 1}};
    comm.put_group(signalled_puts, {}, stream.get());
    comm.put_group(puts, awaited, stream.get());
    POLYPATH_CHECK(comm_driver, stream_synchronize(stream.get()));
    EXPECT_EQ(random_bytes(64, seed_of(other, 1)), read(comm_driver, inbox.local(), 64));
    EXPECT_EQ(0U, comm.put_counts().by_kernel);
    EXPECT_EQ(1U, comm.put_counts().by_copies);
  });
  EXPECT_EQ(2, launches);  // a wait of each rank
}

/// Puts after which many streams wait leave room: all of them come before any signal does.
TEST(Puts, BesideManyStreamsThatWait) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const int other = 1 - comm.rank();
    constexpr std::uint64_t kStreams = 20;
    const SymmetricMemory inbox = comm.alloc(kStreams * 64);
    const SymmetricMemory words = comm.alloc((kStreams + 1) * sizeof(std::uint64_t));
    const Device out(driver, random_bytes(kStreams * 64, seed_of(comm.rank(), 1)));
    std::vector<std::unique_ptr<Stream>> streams;
    for (std::uint64_t i = 0; i < kStreams; ++i) {
      streams.push_back(std::make_unique<Stream>(driver, comm.context()));
      const std::array puts{
          PutWithSignal{{other, inbox, i * 64, out.get() + i * 64, 64}, Signal{words, 8 * i, 1}}};
      const std::array awaited{Signal{words, 8 * i, 1}, Signal{words, 8 * kStreams, 1}};
      comm.put_group(puts, awaited, streams.back()->get());
    }
    EXPECT_TRUE(comm.streams_wait());
    EXPECT_EQ(kStreams, comm.put_counts().by_kernel);
    meet(comm);  // all have looked
    comm.signal(other, {words, 8 * kStreams, 1}, nullptr);
    for (const auto& stream : streams) POLYPATH_CHECK(driver, stream_synchronize(stream->get()));
    EXPECT_EQ(random_bytes(kStreams * 64, seed_of(other, 1)),
              read(driver, inbox.local(), kStreams * 64));
    EXPECT_FALSE(comm.streams_wait());
    meet(comm);
  });
}

TEST(Puts, OverTheirOwnSourceAreRefused) {
  NEEDS_GPUS(2);
  Context engine(group_node(), {});
  Group group(2, {.engine = &engine});
  group.run([](Communicator& comm) {
    const SymmetricMemory inbox = comm.alloc(64);
    const Stream stream(comm.driver(), comm.context());
    EXPECT_THROW(comm.put({comm.rank(), inbox, 8, inbox.local(), 32}, stream.get()),
                 InvalidArgument);
    meet(comm);
  });
}

/// Memory that a kernel cannot read, or need not be able to.
TEST(Puts, FromTheHostsMemoryTheyAreCopies) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const SymmetricMemory inbox = comm.alloc(128);
    const SymmetricMemory words = comm.alloc(8);
    const Stream stream(driver, comm.context());
    const Bytes contents = random_bytes(128, seed_of(comm.rank(), 1));
    void* pinned = nullptr;
    POLYPATH_CHECK(driver, mem_host_alloc(&pinned, 64, 0));
    std::memcpy(pinned, contents.data(), 64);
    const int other = 1 - comm.rank();
    comm.put({other, inbox, 0, reinterpret_cast<CUdeviceptr>(pinned), 64}, stream.get());
    comm.put({other, inbox, 64, reinterpret_cast<CUdeviceptr>(contents.data()) + 64, 64},
             {words, 0, 1}, stream.get());
    comm.wait_signal({words, 0, 1}, stream.get());
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    EXPECT_EQ(random_bytes(128, seed_of(other, 1)), read(driver, inbox.local(), 128));
    EXPECT_EQ(0U, comm.put_counts().by_kernel);
    EXPECT_EQ(2U, comm.put_counts().by_copies);
    POLYPATH_CHECK(driver, mem_free_host(pinned));
    meet(comm);
  });
}

/// Rounds of an exchange with all other ranks: each in one group, with the words that it waits for.
/// No rank sends again before all have signalled that they have taken what came.
void exchange_with_all(Group& group, std::uint64_t bytes, int rounds) {
  group.run([&](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const auto size = static_cast<std::uint64_t>(comm.size());
    const auto own = static_cast<std::uint64_t>(comm.rank());
    const SymmetricMemory inbox = comm.alloc(size * bytes);
    const SymmetricMemory words = comm.alloc(2 * size * sizeof(std::uint64_t));
    const Stream stream(driver, comm.context());
    std::vector<std::unique_ptr<Device>> out;
    std::vector<std::unique_ptr<Device>> in;
    for (int i = 0; i < rounds; ++i) {
      const auto round = static_cast<std::uint64_t>(i) + 1;
      out.push_back(
          std::make_unique<Device>(driver, random_bytes(bytes, seed_of(comm.rank(), round))));
      in.push_back(std::make_unique<Device>(driver, Bytes(size * bytes, std::byte{0xEE})));
    }
    for (int i = 0; i < rounds; ++i) {
      const auto round = static_cast<std::uint64_t>(i) + 1;
      const auto with_all = [&](std::uint64_t first_word, bool with_bytes) {
        std::vector<PutWithSignal> puts;
        std::vector<Signal> awaited;
        for (int to = 0; to < comm.size(); ++to) {
          if (to == comm.rank()) continue;
          const Signal signal{words, (first_word + own) * sizeof round, round};
          const CUdeviceptr src = out[static_cast<std::size_t>(i)]->get();
          puts.push_back({{to, inbox, own * bytes, src, with_bytes ? bytes : 0}, signal});
          awaited.push_back(
              {words, (first_word + static_cast<std::uint64_t>(to)) * sizeof round, round});
        }
        comm.put_group(puts, awaited, stream.get());
      };
      with_all(0, true);
      POLYPATH_CHECK(driver, memcpy_async(in[static_cast<std::size_t>(i)]->get(), inbox.local(),
                                          size * bytes, stream.get()));
      with_all(size, false);
    }
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    for (int i = 0; i < rounds; ++i) {
      const Bytes received = read(driver, in[static_cast<std::size_t>(i)]->get(), size * bytes);
      for (int from = 0; from < comm.size(); ++from) {
        const Bytes sent =
            from == comm.rank()
                ? Bytes(bytes)
                : random_bytes(bytes, seed_of(from, static_cast<std::uint64_t>(i) + 1));
        ASSERT_TRUE(std::equal(sent.begin(), sent.end(),
                               received.begin() + from * static_cast<std::ptrdiff_t>(bytes)))
            << "round " << i << ", rank " << from << " to " << comm.rank();
      }
    }
    const auto count = static_cast<std::uint64_t>(rounds) * (size - 1);
    EXPECT_EQ(bytes <= largest_of_kernel() ? count : 0, comm.put_counts().by_kernel);
    EXPECT_EQ(bytes <= largest_of_kernel() ? 0 : count, comm.put_counts().by_copies);
    EXPECT_FALSE(comm.streams_wait());
    meet(comm);
  });
}

TEST(Puts, SmallGroup_SignalsAndWaits) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(4));
  exchange_with_all(group, 10'007, 20);
}

TEST(Puts, MultiBlockGroup_SignalsAndWaits) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(4));
  exchange_with_all(group, 200'011, 8);
}

TEST(Puts, LargeGroup_SignalsAndWaits) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(4));
  exchange_with_all(group, 4 * kMiB + 5, 4);  // on streams that fork from that of the call
}

/// More than one kernel makes, over one another, each with its word; a large one is among them or
/// not.
void put_in_order(std::uint64_t large) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([&](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    constexpr std::uint64_t kPuts = 40;
    const int other = 1 - comm.rank();
    const std::uint64_t bytes = large + 3000;
    const SymmetricMemory inbox = comm.alloc(bytes);
    const SymmetricMemory words = comm.alloc(kPuts * sizeof(std::uint64_t));
    const Stream stream(driver, comm.context());
    const auto sent_by = [&](int rank) { return random_bytes(2 * bytes, seed_of(rank, 1)); };
    const Device out(driver, sent_by(comm.rank()));
    write(driver, inbox.local(), Bytes(bytes, std::byte{0x5A}));
    std::mt19937_64 random(7);
    std::vector<PutWithSignal> puts;
    std::vector<Signal> awaited;
    Bytes expected(bytes, std::byte{0x5A});
    const Bytes sent = sent_by(other);
    for (std::uint64_t i = 0; i < kPuts; ++i) {
      const std::uint64_t length = i == 20 && large > 0 ? large : 1 + random() % 2000;
      const std::uint64_t to = random() % (bytes - length + 1);
      const std::uint64_t from = random() % bytes;
      const Signal word{words, i * sizeof i, i + 1};
      puts.push_back({{other, inbox, to, out.get() + from, length}, word});
      awaited.push_back(word);
      std::copy_n(sent.begin() + static_cast<std::ptrdiff_t>(from), length,
                  expected.begin() + static_cast<std::ptrdiff_t>(to));
    }
    meet(comm);
    comm.put_group(puts, awaited, stream.get());
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    EXPECT_TRUE(is_same(expected, read(driver, inbox.local(), bytes)));
    EXPECT_EQ(large > 0 ? 0 : kPuts, comm.put_counts().by_kernel);
    EXPECT_EQ(large > 0 ? kPuts : 0, comm.put_counts().by_copies);
    meet(comm);
  });
}

TEST(Puts, PutsToOneRank_KeepTheirOrder) { put_in_order(0); }
TEST(Puts, LargePutAmongSmall_KeepsTheirOrder) { put_in_order(kOfOneBlock + 100); }

/// By themselves and in a group, with signals: launched again and again.
TEST(Puts, CapturedPuts_RunAtEachLaunch) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const int other = 1 - comm.rank();
    constexpr std::uint64_t kLarge = kOfOneBlock + 7;
    constexpr std::uint64_t kAll = 2 * (kLarge + 500);
    const SymmetricMemory inbox = comm.alloc(kAll);
    const SymmetricMemory words = comm.alloc(40);
    const Stream stream(driver, comm.context());
    const Device out(driver, Bytes(kAll));
    POLYPATH_CHECK(driver, stream_begin_capture(stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED));
    std::uint64_t at = 0;
    std::uint64_t word = 0;
    const auto next = [&](std::uint64_t bytes) {
      const PutWithSignal entry{{other, inbox, at, out.get() + at, bytes},
                                Signal{words, 8 * word++, 7}};
      at += bytes;
      return entry;
    };
    for (const std::uint64_t bytes : {kLarge, std::uint64_t{500}}) {
      const PutWithSignal entry = next(bytes);
      comm.put(entry.put, *entry.then, stream.get());
    }
    const std::array large{next(kLarge)};
    comm.put_group(large, {}, stream.get());
    const std::array small{next(500)};
    const std::array awaited{Signal{words, 0, 7}, Signal{words, 8, 7}};
    comm.put_group(small, awaited, stream.get());
    comm.signal(other, {words, 32, 7}, stream.get());
    for (const std::uint64_t offset : {16, 24, 32})
      comm.wait_signal({words, offset, 7}, stream.get());
    CUgraph graph = nullptr;
    POLYPATH_CHECK(driver, stream_end_capture(stream.get(), &graph));
    CUgraphExec exec = nullptr;
    POLYPATH_CHECK(driver, graph_instantiate(&exec, graph, 0));
    for (std::uint64_t round = 1; round <= 3; ++round) {
      write(driver, out.get(), random_bytes(kAll, seed_of(comm.rank(), round)));
      meet(comm);
      POLYPATH_CHECK(driver, graph_launch(exec, stream.get()));
      POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
      ASSERT_TRUE(
          is_same(random_bytes(kAll, seed_of(other, round)), read(driver, inbox.local(), kAll)));
      // The values are the same at each launch: so the words go back.
      for (const std::uint64_t offset : {0, 8, 16, 24, 32})
        comm.signal(comm.rank(), {words, offset, 0}, stream.get());
      POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    }
    // Several blocks are not counted in a graph.
    EXPECT_EQ(2U, comm.put_counts().by_kernel);
    EXPECT_EQ(2U, comm.put_counts().by_copies);
    meet(comm);
    POLYPATH_CHECK(driver, graph_exec_destroy(exec));
    POLYPATH_CHECK(driver, graph_destroy(graph));
  });
}

/// On more streams than blocks are counted on, at once.
TEST(Puts, OnManyStreamsAtOnce) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const int other = 1 - comm.rank();
    constexpr std::uint64_t kStreams = 70;
    constexpr std::uint64_t kCounted = 64;
    constexpr std::uint64_t kBytes = kOfOneBlock + 11;
    const SymmetricMemory inbox = comm.alloc(kStreams * kBytes);
    const SymmetricMemory words = comm.alloc(kStreams * sizeof(std::uint64_t));
    const Device out(driver, random_bytes(kStreams * kBytes, seed_of(comm.rank(), 1)));
    write(driver, inbox.local(), Bytes(kStreams * kBytes, std::byte{0x5A}));
    meet(comm);
    std::vector<std::unique_ptr<Stream>> streams;
    for (std::uint64_t i = 0; i < kStreams; ++i) {
      streams.push_back(std::make_unique<Stream>(driver, comm.context()));
      comm.put({other, inbox, i * kBytes, out.get() + i * kBytes, kBytes}, {words, 8 * i, 1},
               streams.back()->get());
    }
    for (std::uint64_t i = 0; i < kStreams; ++i)
      comm.wait_signal({words, 8 * i, 1}, streams.back()->get());
    for (const auto& stream : streams) POLYPATH_CHECK(driver, stream_synchronize(stream->get()));
    EXPECT_TRUE(is_same(random_bytes(kStreams * kBytes, seed_of(other, 1)),
                        read(driver, inbox.local(), kStreams * kBytes)));
    EXPECT_EQ(kCounted, comm.put_counts().by_kernel);
    EXPECT_EQ(kStreams - kCounted, comm.put_counts().by_copies);
    EXPECT_FALSE(comm.streams_wait());
    meet(comm);
  });
}

TEST(Puts, WrongMember_IssuesNothing) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const SymmetricMemory inbox = comm.alloc(64);
    const Stream stream(driver, comm.context());
    const Device out(driver, Bytes(64));
    const int other = 1 - comm.rank();
    const auto refusal = [&](const std::vector<PutWithSignal>& puts,
                             const std::vector<Signal>& awaited) -> std::string {
      try {
        comm.put_group(puts, awaited, stream.get());
      } catch (const InvalidArgument& error) {
        return error.what();
      }
      return "nothing thrown";
    };
    const PutWithSignal good{{other, inbox, 0, out.get(), 8}, {}};
    EXPECT_THAT(refusal({good, {{other, inbox, 60, out.get(), 8}, {}}}, {}),
                HasSubstr("put 1: put.memory: 8 bytes at offset 60 are past the end"));
    EXPECT_THAT(refusal({good}, {{inbox, 0, 1}, {inbox, 4, 1}}),
                HasSubstr("awaited 1: signal.offset is 4, not a multiple of 8"));
    EXPECT_EQ(0U, comm.put_counts().by_kernel + comm.put_counts().by_copies);
    EXPECT_EQ("nothing thrown", refusal({}, {}));
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    EXPECT_EQ(Bytes(64), read(driver, inbox.local(), 64));
    meet(comm);
  });
}

}  // namespace
}  // namespace polypath::test
