// A transfer is ordered on its caller's stream as a native copy is: it reads what came before, and
// what comes after sees all of it.
#include <cstring>
#include <variant>

#include "behaviour_test.hpp"

namespace polypath::test {
namespace {

TEST_P(OrderTest, FollowsAndPrecedesMemsetsOfItsStream) {
  const auto context = make_context();
  const MemoryId dst_memory = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const std::uint64_t bytes = min_split(*context, MemoryId::gpu(0), dst_memory).value_or(kMiB) * 2;
  context->prepare({{MemoryId::gpu(0), dst_memory, bytes}});
  TestBuffer src(driver(), node(), MemoryId::gpu(0), bytes);
  TestBuffer dst(driver(), node(), dst_memory, bytes);
  src.fill(7);
  dst.poison();
  const Stream stream = stream_on(0);
  const Traffic traffic(*context);

  const auto set_source = [&](unsigned char value, std::uint64_t from, std::uint64_t count) {
    POLYPATH_CHECK(driver(), memset_d8_async(src.address() + from, value, count, stream.get()));
  };
  set_source(0x11, 0, bytes);
  copy(*context, {dst.address(), src.address(), bytes, stream.get()});
  set_source(0x22, 0, bytes);  // must not reach the copy before it
  synchronize(stream.get());

  const std::vector<std::byte> expected(kMiB, std::byte{0x11});
  for (std::uint64_t at = 0; at < bytes; at += kMiB)
    ASSERT_EQ(0, std::memcmp(read_back(driver(), dst, at, kMiB).data(), expected.data(), kMiB))
        << "in the MiB at " << at;
  EXPECT_TRUE(traffic.went_as(context->plan({{MemoryId::gpu(0), dst_memory, bytes}})));
}

TEST_P(OrderTest, ChainsAcrossGpusAndStreamsArrive) {
  const auto context = make_context();
  // host, all GPUs, host: each hop on another GPU's stream, ordered by events alone.
  std::vector<MemoryId> stations{MemoryId::host(0)};
  for (int gpu = 0; gpu < gpus(); ++gpu) stations.push_back(MemoryId::gpu(gpu));
  stations.push_back(MemoryId::host(0));
  const std::uint64_t bytes = 24 * kMiB + 11;

  std::vector<std::unique_ptr<TestBuffer>> buffers;
  std::vector<Request> hops;
  for (std::size_t i = 0; i < stations.size(); ++i) {
    buffers.push_back(std::make_unique<TestBuffer>(driver(), node(), stations[i], bytes));
    buffers.back()->poison();
    if (i > 0) {
      hops.push_back({stations[i - 1], stations[i], bytes});
      context->prepare({hops.back()});
    }
  }
  buffers.front()->fill(99);

  std::vector<Stream> streams;
  std::vector<Event> events;
  for (std::size_t hop = 0; hop < hops.size(); ++hop) {
    const int gpu = hops[hop].src.is_gpu() ? hops[hop].src.index : hops[hop].dst.index;
    streams.push_back(stream_on(gpu));
    events.emplace_back(driver(), context_of(gpu), CU_EVENT_DISABLE_TIMING);
  }
  const Traffic traffic(*context);
  for (std::size_t hop = 0; hop < hops.size(); ++hop) {
    const CUstream stream = streams[hop].get();
    if (hop > 0) POLYPATH_CHECK(driver(), stream_wait_event(stream, events[hop - 1].get(), 0));
    copy(*context, {buffers[hop + 1]->address(), buffers[hop]->address(), bytes, stream});
    const int gpu = hops[hop].src.is_gpu() ? hops[hop].src.index : hops[hop].dst.index;
    const CurrentContext current(driver(), context_of(gpu));
    POLYPATH_CHECK(driver(), event_record(events[hop].get(), stream));
  }
  synchronize(streams.back().get());

  EXPECT_EQ(buffers.back()->first_difference(99), std::nullopt);
  EXPECT_EQ(traffic.bytes(), bytes * hops.size());
  EXPECT_EQ(traffic.failed(), 0u);
  // A hop may find the channels taken by the one before, which waits for its own event; planned
  // anew without them, it may want routes that are not prepared. Nothing says that hops follow each
  // other: they are planned as if they ran at the same time.
  EXPECT_EQ(traffic.split() + traffic.native(NativeReason::no_gain) +
                traffic.native(NativeReason::busy) + traffic.native(NativeReason::not_ready) +
                traffic.native(NativeReason::links_in_use),
            hops.size());
}

TEST_P(OrderTest, LegacyDefaultStreamOrdersBlockingStreams) {
  const auto context = make_context();
  const MemoryId far = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const std::uint64_t bytes = min_split(*context, MemoryId::gpu(0), far).value_or(kMiB) * 2;
  context->prepare({{MemoryId::gpu(0), far, bytes}});
  TestBuffer start(driver(), node(), MemoryId::gpu(0), bytes);
  TestBuffer src(driver(), node(), MemoryId::gpu(0), bytes);
  TestBuffer dst(driver(), node(), far, bytes);
  TestBuffer end(driver(), node(), MemoryId::gpu(0), bytes);
  start.fill(5);
  for (TestBuffer* buffer : {&src, &dst, &end}) buffer->poison();

  CUstream blocking = nullptr;
  POLYPATH_CHECK(driver(), stream_create(&blocking, CU_STREAM_DEFAULT));
  const Traffic traffic(*context);
  // Blocking stream, then the legacy stream, then the blocking stream again: one order.
  POLYPATH_CHECK(driver(), memcpy_async(src.address(), start.address(), bytes, blocking));
  copy(*context, {dst.address(), src.address(), bytes, nullptr});
  POLYPATH_CHECK(driver(), memcpy_async(end.address(), dst.address(), bytes, blocking));
  synchronize(blocking);
  POLYPATH_CHECK(driver(), stream_destroy(blocking));

  EXPECT_EQ(end.first_difference(5), std::nullopt);
  EXPECT_TRUE(traffic.went_as(context->plan({{MemoryId::gpu(0), far, bytes}})));
}

/// A random program over a few buffers: fills, copies by polypath and native copies, on random
/// streams, ordered by nothing but events. What each buffer must hold in the end is computed next
/// to it.
class RandomProgram {
 public:
  RandomProgram(const CudaDriver& driver, const std::vector<TestBuffer*>& buffers,
                std::vector<std::pair<CUstream, CUcontext>> streams)
      : driver_(driver), streams_(std::move(streams)) {
    for (TestBuffer* buffer : buffers) {
      const std::uint64_t seed = places_.size() + 1;
      buffer->fill(seed);
      places_.push_back({seed, nullptr, {}});
    }
  }

  using Contents = std::variant<std::uint64_t, unsigned char>;  // pattern's seed, or one value

  /// `issue(stream)` reads place `from` and writes all of place `to`, whose contents then are
  /// `contents`.
  template <typename Issue>
  void add(std::size_t stream, std::size_t from, std::size_t to, Contents contents, Issue&& issue) {
    wait_for(stream, places_[from].written);
    wait_for(stream, places_[to].written);
    for (const CUevent read : places_[to].read) wait_for(stream, read);
    issue(streams_[stream].first);
    const CUevent end = record(stream);
    if (from != to) places_[from].read.push_back(end);
    places_[to].written = end;
    places_[to].read.clear();
    places_[to].contents = contents;
  }

  [[nodiscard]] const Contents& contents(std::size_t place) const {
    return places_[place].contents;
  }

 private:
  struct Place {
    Contents contents;
    CUevent written;
    std::vector<CUevent> read;  // since it was written
  };

  void wait_for(std::size_t stream, CUevent event) {
    if (event == nullptr) return;
    const CurrentContext current(driver_, streams_[stream].second);
    POLYPATH_CHECK(driver_, stream_wait_event(streams_[stream].first, event, 0));
  }
  CUevent record(std::size_t stream) {
    const auto& [handle, context] = streams_[stream];
    events_.emplace_back(driver_, context, CU_EVENT_DISABLE_TIMING);
    const CurrentContext current(driver_, context);
    POLYPATH_CHECK(driver_, event_record(events_.back().get(), handle));
    return events_.back().get();
  }

  const CudaDriver& driver_;
  std::vector<std::pair<CUstream, CUcontext>> streams_;
  std::vector<Place> places_;
  std::vector<Event> events_;
};

TEST_P(OrderTest, RandomProgramsOfCopiesAndMemsetsEndRight) {
  const auto context = make_context();
  constexpr std::uint64_t kBytes = 8 * kMiB + 77;
  std::vector<std::unique_ptr<TestBuffer>> buffers;
  std::vector<TestBuffer*> places;
  for (const MemoryId memory : memories())
    for (int i = 0; i < 2; ++i) {
      buffers.push_back(std::make_unique<TestBuffer>(driver(), node(), memory, kBytes));
      places.push_back(buffers.back().get());
    }
  std::vector<Stream> streams;
  std::vector<std::pair<CUstream, CUcontext>> handles;
  for (int i = 0; i < 2 * gpus(); ++i) {
    streams.push_back(stream_on(i % gpus()));
    handles.emplace_back(streams.back().get(), context_of(i % gpus()));
  }
  RandomProgram program(driver(), places, handles);
  const Traffic traffic(*context);
  std::uint64_t transfers = 0;

  for (int step = 0; step < 120; ++step) {
    const std::size_t from = random_() % places.size();
    const std::size_t to = random_() % places.size();
    if (from == to) {
      // A GPU sets memory of its own.
      if (places[to]->memory().is_host()) continue;
      const auto gpu = static_cast<std::size_t>(places[to]->memory().index);
      const auto value = static_cast<unsigned char>(random_());
      program.add(gpu, to, to, value, [&](CUstream on) {
        const CurrentContext current(driver(), handles[gpu].second);
        POLYPATH_CHECK(driver(), memset_d8_async(places[to]->address(), value, kBytes, on));
      });
      continue;
    }
    const std::size_t stream = random_() % handles.size();
    program.add(stream, from, to, program.contents(from), [&](CUstream on) {
      const Transfer transfer{places[to]->address(), places[from]->address(), kBytes, on};
      const CurrentContext current(driver(), handles[stream].second);
      if (step % 8 == 7) {
        POLYPATH_CHECK(driver(), memcpy_async(transfer.dst, transfer.src, kBytes, on));
        return;
      }
      copy(*context, transfer);
      ++transfers;
    });
  }
  for (const auto& [stream, unused] : handles) ASSERT_TRUE(completes(stream));

  for (std::size_t place = 0; place < places.size(); ++place) {
    SCOPED_TRACE("place " + std::to_string(place) + ", " + to_string(places[place]->memory()));
    if (const auto* seed = std::get_if<std::uint64_t>(&program.contents(place))) {
      EXPECT_EQ(places[place]->first_difference(*seed), std::nullopt);
    } else {
      const auto value = std::byte{std::get<unsigned char>(program.contents(place))};
      for (const std::byte byte : read_back(driver(), *places[place], 0, kBytes))
        ASSERT_EQ(byte, value);
    }
  }
  EXPECT_EQ(traffic.bytes(), transfers * kBytes);
  EXPECT_EQ(traffic.split() + traffic.native(), transfers);
  EXPECT_EQ(traffic.failed(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Graph, OrderTest, testing::Values(executor_case("graph")), kCaseName);
INSTANTIATE_TEST_SUITE_P(Stream, OrderTest, testing::Values(executor_case("stream")), kCaseName);

}  // namespace
}  // namespace polypath::test
