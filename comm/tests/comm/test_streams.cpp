// Put, signal, wait and barrier on streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <chrono>

#include <array>
#include <atomic>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "core/context.hpp"
#include "group.hpp"
#include "memory.hpp"
#include "support/driver_extras.hpp"
#include "support/traffic.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

template <typename Thrown, typename Body>
std::string thrown_by(const Body& body) {
  try {
    body();
  } catch (const Thrown& error) {
    return error.what();
  }
  return "nothing thrown";
}

constexpr std::size_t kBytes = 200'001;

Bytes message(int from, std::uint64_t round) {
  return random_bytes(kBytes, 1000 * round + static_cast<std::uint64_t>(from));
}

/// Each rank puts a message to the next one in each round, which says when it has taken it.
void send_around(Group& group, int rounds) {
  group.run([&](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const SymmetricMemory inbox = comm.alloc(kBytes);
    const SymmetricMemory words = comm.alloc(16);  // arrived, taken
    const Stream sending(driver, comm.context());
    const Stream receiving(driver, comm.context());
    const int next = (comm.rank() + 1) % comm.size();
    const int last = (comm.rank() + comm.size() - 1) % comm.size();
    std::vector<std::unique_ptr<Device>> out;
    std::vector<std::unique_ptr<Device>> in;
    for (int i = 0; i < rounds; ++i) {
      const auto round = static_cast<std::uint64_t>(i) + 1;
      out.push_back(std::make_unique<Device>(driver, message(comm.rank(), round)));
      in.push_back(std::make_unique<Device>(driver, Bytes(kBytes, std::byte{0xEE})));
      if (i > 0) comm.wait_signal({words, 8, round - 1}, sending.get());
      comm.put({next, inbox, 0, out.back()->get(), kBytes}, {words, 0, round}, sending.get());
      comm.wait_signal({words, 0, round}, receiving.get());
      POLYPATH_CHECK(driver,
                     memcpy_async(in.back()->get(), inbox.local(), kBytes, receiving.get()));
      comm.signal(last, {words, 8, round}, receiving.get());
    }
    POLYPATH_CHECK(driver, stream_synchronize(sending.get()));
    POLYPATH_CHECK(driver, stream_synchronize(receiving.get()));
    for (int i = 0; i < rounds; ++i)
      ASSERT_TRUE(read(driver, in[static_cast<std::size_t>(i)]->get(), kBytes) ==
                  message(last, static_cast<std::uint64_t>(i) + 1))
          << "round " << i << " of rank " << comm.rank();
    EXPECT_FALSE(comm.streams_wait());
  });
}

// The kernel of batches is loaded with those that wait: the driver loads none while they run.
TEST(Streams, BatchWhileStreamWaits_DoesNotHang) {
  NEEDS_GPUS(2);
  Context engine(group_node(), {});
  Group group(2, {.time_limit = std::chrono::seconds(10), .engine = &engine});
  std::atomic<bool> is_prepared = false;
  group.run([&](Communicator& comm) {
    const SymmetricMemory words = comm.alloc(8);
    const Stream stream(comm.driver(), comm.context());
    if (comm.rank() == 0) {
      comm.wait_signal({words, 0, 1}, stream.get());
      engine.prepare_batches({{MemoryId::host(0), MemoryId::gpu(0), 0}});
      is_prepared = true;
      is_prepared.notify_one();
    } else {
      is_prepared.wait(false);
      comm.signal(0, {words, 0, 1}, stream.get());
    }
    POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
    comm.check();
  });
}

TEST(Streams, SignalArrivesAfterItsBytes) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(4));
  send_around(group, 20);
}

TEST(Streams, BarrierOrdersPutsAndReads) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(4));
  group.run([](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    constexpr int kRounds = 30;
    const auto size = static_cast<std::size_t>(comm.size());
    const SymmetricMemory parts = comm.alloc(size * kBytes);
    const Stream stream(driver, comm.context());
    std::vector<std::unique_ptr<Device>> out;
    std::vector<std::unique_ptr<Device>> in;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      out.push_back(std::make_unique<Device>(driver, message(comm.rank(), round)));
      in.push_back(std::make_unique<Device>(driver, Bytes(size * kBytes, std::byte{0xEE})));
      for (int to = 0; to < comm.size(); ++to)
        comm.put(
            {to, parts, static_cast<std::size_t>(comm.rank()) * kBytes, out.back()->get(), kBytes},
            stream.get());
      comm.barrier(stream.get());
      POLYPATH_CHECK(driver,
                     memcpy_async(in.back()->get(), parts.local(), size * kBytes, stream.get()));
      comm.barrier(stream.get());
    }
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      Bytes expected;
      for (int from = 0; from < comm.size(); ++from) {
        const Bytes bytes = message(from, round);
        expected.insert(expected.end(), bytes.begin(), bytes.end());
      }
      ASSERT_TRUE(expected == read(driver, in[round]->get(), size * kBytes)) << "round " << round;
    }
  });
}

TEST(Streams, LargePut_UsesAllRoutes) {
  NEEDS_GPUS(2);
  Context engine(group_node(), {{"prepare", "wait"}});
  Group group(2, {.engine = &engine});
  constexpr std::size_t kLarge = 64 * kMiB;
  // Both ways at once: with routes, and plans, for either.
  engine.prepare(
      {{MemoryId::gpu(0), MemoryId::gpu(1), kLarge}, {MemoryId::gpu(1), MemoryId::gpu(0), kLarge}});
  const Traffic traffic(engine);
  group.run([&](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const SymmetricMemory inbox = comm.alloc(kLarge);
    const SymmetricMemory words = comm.alloc(8);
    const Stream stream(driver, comm.context());
    const Bytes contents = random_bytes(kLarge, static_cast<std::uint64_t>(comm.rank()));
    const Device out(driver, contents);
    comm.put({1 - comm.rank(), inbox, 0, out.get(), kLarge}, {words, 0, 1}, stream.get());
    comm.wait_signal({words, 0, 1}, stream.get());
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    EXPECT_TRUE(is_same(random_bytes(kLarge, static_cast<std::uint64_t>(1 - comm.rank())),
                        read(driver, inbox.local(), kLarge)));
  });
  const Plan plan = engine.plan({{MemoryId::gpu(0), MemoryId::gpu(1), kLarge}});
  EXPECT_EQ(plan.native() ? 0U : 2U, traffic.split());
}

TEST(Streams, ValuesCountInACircle) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([](Communicator& comm) {
    const SymmetricMemory words = comm.alloc(8);
    const Stream stream(comm.driver(), comm.context());
    // Past the end, in steps of less than half the circle.
    for (const std::uint64_t value : {1ULL << 62, (1ULL << 63) - 1, 3ULL << 62, ~0ULL, 5ULL}) {
      comm.signal(1 - comm.rank(), {words, 0, value}, stream.get());
      comm.wait_signal({words, 0, value}, stream.get());
      POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
      std::vector<std::byte> none(2);
      comm.exchange(std::span(none).first(1), none);
    }
  });
}

TEST(Streams, AbortReleasesWaitingStreams) {
  NEEDS_GPUS(2);
  Group group(gpus_up_to(3));
  std::atomic<int> waiting{0};
  const auto failures = group.failures([&](Communicator& comm) {
    const SymmetricMemory words = comm.alloc(64);
    const Stream stream(comm.driver(), comm.context());
    if (comm.rank() == 0) {
      while (waiting < comm.size() - 1) std::this_thread::yield();
      comm.abort("rank 0 gives up");
    } else {
      // Two waits for one word, another word, and a barrier.
      comm.wait_signal({words, 8, 5}, stream.get());
      comm.wait_signal({words, 8, 9}, stream.get());
      comm.wait_signal({words, 16, ~0ULL >> 1}, stream.get());
      comm.barrier(stream.get());
      EXPECT_TRUE(comm.streams_wait());
      ++waiting;
    }
    POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
    EXPECT_FALSE(comm.streams_wait());
    comm.barrier(stream.get());
  });
  EXPECT_THAT(failures, Each(HasSubstr("rank 0 gives up")));
}

// More than a GPU runs grids at once, and far more than it has hardware queues.
constexpr int kMany = 200;

TEST(Streams, AbortReleasesManyStreams) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([&](Communicator& comm) {
    const SymmetricMemory words = comm.alloc(64);
    if (comm.rank() == 1) {
      std::vector<Stream> streams;
      for (int i = 0; i < kMany; ++i) streams.emplace_back(comm.driver(), comm.context());
      for (const Stream& stream : streams) comm.wait_signal({words, 0, 1}, stream.get());
      EXPECT_TRUE(comm.streams_wait());
      comm.abort("for a test");
      for (const Stream& stream : streams)
        POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
      EXPECT_FALSE(comm.streams_wait());
    }
  });
}

TEST(Streams, SignalReleasesManyStreams) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([&](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const SymmetricMemory inbox = comm.alloc(kBytes);
    const SymmetricMemory words = comm.alloc(64);
    const Stream sending(driver, comm.context());
    const Device out(driver, message(comm.rank(), 1));
    std::vector<Stream> streams;
    std::vector<std::unique_ptr<Device>> in;
    if (comm.rank() == 1) {
      for (int i = 0; i < kMany; ++i) {
        streams.emplace_back(driver, comm.context());
        in.push_back(std::make_unique<Device>(driver, Bytes(kBytes, std::byte{0xEE})));
      }
      for (std::size_t i = 0; i < kMany; ++i) {
        comm.wait_signal({words, 8, 3}, streams[i].get());
        POLYPATH_CHECK(driver, memcpy_async(in[i]->get(), inbox.local(), kBytes, streams[i].get()));
      }
      EXPECT_TRUE(comm.streams_wait());
    }
    comm.exchange({}, {});
    if (comm.rank() == 0) comm.put({1, inbox, 0, out.get(), kBytes}, {words, 8, 3}, sending.get());
    POLYPATH_CHECK(driver, stream_synchronize(sending.get()));
    for (const Stream& stream : streams) POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    for (const auto& each : in) ASSERT_TRUE(read(driver, each->get(), kBytes) == message(0, 1));
    EXPECT_FALSE(comm.streams_wait());
    comm.check();
  });
}

/// Until the work of the stream is done. Time passes meanwhile, virtual time as well.
void poll(Communicator& comm, const Stream& stream) {
  using Advance = void(double us);
  const auto advance = driver_function<Advance>(comm.driver(), "polypath_sim_advance_us");
  while (comm.driver().stream_query(stream.get()) == CUDA_ERROR_NOT_READY)
    if (advance != nullptr)
      advance(1000);
    else
      std::this_thread::yield();
}

TEST(Streams, MissingSignal_Aborts) {
  NEEDS_GPUS(2);
  Group group(2);
  const auto failures = group.failures([&](Communicator& comm) {
    const SymmetricMemory words = comm.alloc(64);
    const Stream stream(comm.driver(), comm.context());
    if (comm.rank() == 1) {
      comm.set_time_limit(std::chrono::milliseconds(50));
      comm.signal(1, {words, 24, 2}, stream.get());
      comm.wait_signal({words, 24, 3}, stream.get());
      poll(comm, stream);
      // It is known as soon as the stream goes on.
      EXPECT_THAT(thrown_by<CommunicatorError>([&] { comm.check(); }), HasSubstr("rank 1"));
    }
    while (!comm.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm.check();
  });
  EXPECT_THAT(failures, Each(HasSubstr("rank 1: a stream waited past the time limit for the signal "
                                       "at offset 24 of 64 bytes to be 3: it is 2")));
}

TEST(Streams, IncompleteBarrier_Aborts) {
  NEEDS_GPUS(2);
  Group group(2);
  const auto failures = group.failures([&](Communicator& comm) {
    const Stream stream(comm.driver(), comm.context());
    comm.barrier(stream.get());
    POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
    if (comm.rank() == 1) {
      comm.set_time_limit(std::chrono::milliseconds(50));
      comm.barrier(stream.get());
      poll(comm, stream);
    }
    while (!comm.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm.check();
  });
  EXPECT_THAT(failures, Each(HasSubstr("rank 1: a stream waited past the time limit for rank 0 at "
                                       "barrier 2: it is at 1")));
}

TEST(Streams, WaitOnHeldStream_DoesNotTimeOut) {
  NEEDS_GPUS(1);
  Group group(1);
  Group impatient(1);
  group.run([&](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const SymmetricMemory words = comm.alloc(8);
    const SymmetricMemory other = impatient[0].alloc(8);
    const Stream stream(driver, comm.context());
    const Stream late(driver, comm.context());
    comm.set_time_limit(std::chrono::milliseconds(50));
    impatient[0].set_time_limit(std::chrono::milliseconds(100));
    // Held back by the program itself.
    void* memory = nullptr;
    POLYPATH_CHECK(driver, mem_host_alloc(&memory, 4, CU_MEMHOSTALLOC_PORTABLE));
    std::atomic_ref gate(*static_cast<std::uint32_t*>(memory));
    gate.store(0);
    POLYPATH_CHECK(driver, stream_wait_value32(stream.get(), reinterpret_cast<CUdeviceptr>(memory),
                                               1, CU_STREAM_WAIT_VALUE_EQ));
    comm.wait_signal({words, 0, 5}, stream.get());
    // So long that the time limit is over.
    impatient[0].wait_signal({other, 0, 5}, late.get());
    poll(impatient[0], late);
    EXPECT_THROW(impatient[0].check(), CommunicatorError);
    EXPECT_NO_THROW(comm.check());
    EXPECT_TRUE(comm.streams_wait());
    comm.signal(0, {words, 0, 5}, late.get());
    POLYPATH_CHECK(driver, stream_synchronize(late.get()));
    gate.store(1);
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    EXPECT_NO_THROW(comm.check());
    EXPECT_FALSE(comm.streams_wait());
    POLYPATH_CHECK(driver, mem_free_host(memory));
  });
}

TEST(Streams, WrongArgumentsAreNamedAndChangeNothing) {
  NEEDS_GPUS(2);
  Group group(2);
  Group other(2);
  std::vector<SymmetricMemory> foreign(2);
  other.run(
      [&](Communicator& comm) { foreign[static_cast<std::size_t>(comm.rank())] = comm.alloc(64); });
  group.run([&](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    SymmetricMemory memory = comm.alloc(64);
    const Stream stream(driver, comm.context());
    const Device device(driver, Bytes(64));
    const auto put = [&](int to, const SymmetricMemory& into, std::uint64_t offset, CUdeviceptr src,
                         std::uint64_t bytes) {
      return thrown_by<InvalidArgument>(
          [&] { comm.put({to, into, offset, src, bytes}, stream.get()); });
    };
    EXPECT_THAT(put(2, memory, 0, device.get(), 8), HasSubstr("to is 2: there are ranks 0 to 1"));
    EXPECT_THAT(put(-1, memory, 0, device.get(), 8), HasSubstr("to is -1"));
    EXPECT_THAT(put(0, memory, 60, device.get(), 8),
                HasSubstr("put.memory: 8 bytes at offset 60 are past the end of 64 bytes"));
    EXPECT_THAT(put(0, memory, ~0ULL, device.get(), 8), HasSubstr("past the end"));
    EXPECT_THAT(put(0, memory, 0, 0, 8), HasSubstr("put.src is null"));
    EXPECT_THAT(put(0, {}, 0, device.get(), 8), HasSubstr("put.memory is null"));
    EXPECT_THAT(put(0, foreign[static_cast<std::size_t>(comm.rank())], 0, device.get(), 8),
                HasSubstr("not memory of this communicator"));
    EXPECT_EQ("nothing thrown", put(0, memory, 64, 0, 0));

    const auto wait = [&](const SymmetricMemory& in, std::uint64_t offset, CUstream on) {
      return thrown_by<InvalidArgument>([&] { comm.wait_signal({in, offset, 0}, on); });
    };
    EXPECT_THAT(wait(memory, 4, stream.get()), HasSubstr("signal.offset is 4, not a multiple"));
    EXPECT_THAT(wait(memory, 64, stream.get()), HasSubstr("past the end of 64 bytes"));
    const CurrentContext elsewhere(driver, comm.context());
    const PrimaryContext peer_context(driver, 1 - comm.gpu());
    const Stream not_ours(driver, peer_context.get());
    EXPECT_THAT(wait(memory, 0, not_ours.get()), HasSubstr("stream is not one of the primary"));

    EXPECT_THAT(thrown_by<InvalidArgument>([&] { comm.alloc(0); }), HasSubstr("bytes is 0"));
    SymmetricMemory gone = memory;
    comm.free(std::move(memory));
    EXPECT_THAT(put(0, gone, 0, device.get(), 8), HasSubstr("or was freed"));
    EXPECT_THAT(thrown_by<InvalidArgument>([&] { comm.free(std::move(gone)); }),
                HasSubstr("or was freed"));
    EXPECT_NO_THROW(comm.check());
  });
  send_around(group, 3);
}

TEST(Streams, CapturedWait_WaitsAtEachLaunch) {
  NEEDS_GPUS(2);
  Group group(2);
  group.run([](Communicator& comm) {
    const CudaDriver& driver = comm.driver();
    const SymmetricMemory inbox = comm.alloc(kBytes);
    const SymmetricMemory words = comm.alloc(16);
    const Stream stream(driver, comm.context());
    const Device out(driver, Bytes(kBytes));
    const Device in(driver, Bytes(kBytes, std::byte{0xEE}));
    POLYPATH_CHECK(driver, stream_begin_capture(stream.get(), CU_STREAM_CAPTURE_MODE_RELAXED));
    comm.wait_signal({words, 0, 7}, stream.get());
    CUgraph graph = nullptr;
    POLYPATH_CHECK(driver, stream_end_capture(stream.get(), &graph));
    CUgraphExec exec = nullptr;
    POLYPATH_CHECK(driver, graph_instantiate(&exec, graph, 0));
    const Stream sending(driver, comm.context());
    for (std::uint64_t round = 1; round <= 3; ++round) {
      write(driver, out.get(), message(comm.rank(), round));
      POLYPATH_CHECK(driver, graph_launch(exec, stream.get()));
      POLYPATH_CHECK(driver, memcpy_async(in.get(), inbox.local(), kBytes, stream.get()));
      comm.exchange({}, {});
      comm.put({1 - comm.rank(), inbox, 0, out.get(), kBytes}, {words, 0, 7}, sending.get());
      POLYPATH_CHECK(driver, stream_synchronize(sending.get()));
      POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
      ASSERT_TRUE(read(driver, in.get(), kBytes) == message(1 - comm.rank(), round));
      // The value is the same at each launch: so the word goes back.
      comm.exchange({}, {});
      comm.signal(comm.rank(), {words, 0, 0}, stream.get());
      POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    }
    // An abort lets a graph go as well; that is no wait of a stream that is counted.
    POLYPATH_CHECK(driver, graph_launch(exec, stream.get()));
    EXPECT_FALSE(comm.streams_wait());
    comm.exchange({}, {});
    if (comm.rank() == 0) comm.abort("for a test");
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    POLYPATH_CHECK(driver, graph_exec_destroy(exec));
    POLYPATH_CHECK(driver, graph_destroy(graph));
  });
}

TEST(Streams, DriverWithoutWriteValue_IsNamed) {
  NEEDS_GPUS(2);
  const auto driver = std::make_shared<CudaDriver>(*group_node().driver);
  driver->stream_write_value64 = nullptr;
  Group group(2, {.driver = driver});
  group.run([](Communicator& comm) {
    const Stream stream(comm.driver(), comm.context());
    EXPECT_THAT(thrown_by<NotSupported>([&] { comm.barrier(stream.get()); }),
                HasSubstr("cuStreamWriteValue64"));
  });
}

TEST(Streams, GpuWithoutWaitKernel_IsNamed) {
  NEEDS_GPUS(2);
  const auto driver = std::make_shared<CudaDriver>(*group_node().driver);
  driver->module_load_data = [](CUmodule*, const void*) { return CUDA_ERROR_NO_BINARY_FOR_GPU; };
  EXPECT_THAT(thrown_by<Error>([&] { Group(2, {.driver = driver}); }),
              HasSubstr("rank 0: the kernels cannot run on this GPU"));
  driver->module_load_data = nullptr;
  EXPECT_THAT(thrown_by<Error>([&] { Group(2, {.driver = driver}); }),
              HasSubstr("rank 0: the driver cannot load kernels"));
}

TEST(Streams, DestroyingWhileOneWaitsAborts) {
  NEEDS_GPUS(2);
  set_log_level(LogLevel::off);
  Group group(2);
  group.run([&](Communicator& comm) {
    const Stream stream(comm.driver(), comm.context());
    if (comm.rank() == 0) {
      comm.barrier(stream.get());
      group.destroy(0);
      POLYPATH_CHECK(*group_node().driver, stream_synchronize(stream.get()));
    } else {
      while (!comm.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_THAT(thrown_by<CommunicatorError>([&] { comm.check(); }),
                  HasSubstr("rank 0 destroyed the communicator while its streams waited"));
    }
  });
  set_log_level(LogLevel::warn);
}

}  // namespace
}  // namespace polypath::test
