// Many random transfers by graphs with room for four: random pairs, sizes, streams and addresses in
// a set of buffers. Every byte of each destination is compared, everything around it is still
// poison, and the links have carried what the counters say.
#include <algorithm>
#include <cstring>
#include <map>

#include "support/graph_uses.hpp"
#include "support/simulated_test.hpp"
#include "tune/pattern.hpp"

namespace polypath::test {
namespace {

constexpr std::uint64_t kTransfers = SOAK_TRANSFERS;
constexpr std::size_t kBatch = 24;  ///< transfers under way at once
constexpr std::uint64_t kMinBytes = 256 * kKiB;
constexpr std::uint64_t kMaxBytes = 3 * kMiB;
constexpr std::uint64_t kBufferBytes = 4 * kMiB;
constexpr std::uint64_t kGuard = 4 * kKiB;  ///< compared on each side of a destination
constexpr std::size_t kDestinations = 8;    ///< buffers in each memory
constexpr std::uint8_t kPoison = 0xA5;

struct Destination {
  std::unique_ptr<TestBuffer> buffer;
  bool in_use = false;  ///< by a transfer of this batch
};

struct Place {
  MemoryId memory;
  std::unique_ptr<TestBuffer> source;
  std::vector<std::byte> contents;  ///< of the source
  std::vector<Destination> destinations;
};

/// One transfer as it was drawn, to be compared, or to be repeated.
struct Drawn {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t buffer = 0;  ///< among the destinations of `to`
  std::uint64_t bytes = 0;
  std::uint64_t src_offset = 0;
  std::uint64_t dst_offset = 0;
  std::size_t stream = 0;
};

class GraphSoakTest : public SimulatedTest {
 protected:
  void SetUp() override;

  [[nodiscard]] int gpu_of(std::size_t stream) const { return static_cast<int>(stream) % gpus(); }
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  Drawn draw();
  void issue(const Drawn& drawn);
  /// Waits for all, compares, and poisons what was written.
  void finish_batch();
  [[nodiscard]] std::vector<std::byte> contents(const TestBuffer& buffer, std::uint64_t offset,
                                                std::uint64_t bytes) const;
  void expect_links_as_counted();

  std::unique_ptr<Context> context_;
  std::vector<Place> places_;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::unique_ptr<Stream>> streams_;  ///< two on each GPU, in turn
  std::vector<Drawn> batch_;
  std::vector<Drawn> before_;  ///< of the last batch
  std::map<std::pair<MemoryId, MemoryId>, std::uint64_t> native_bytes_;
  std::uint64_t native_ = 0;
  std::uint64_t bytes_ = 0;
};

void GraphSoakTest::SetUp() {
  SimulatedTest::SetUp();
  if (IsSkipped()) return;
  // Each is planned as if alone: more of them are graphs.
  context_ = std::make_unique<Context>(
      source(), OptionArguments{{"executor", "graph"}, {"graph_cache_size", "4"}, {"load", "off"}});
  for (const MemoryId memory : memories()) {
    Place& place = places_.emplace_back();
    place.memory = memory;
    place.source = std::make_unique<TestBuffer>(driver(), node(), memory, kBufferBytes);
    const std::uint64_t seed = random_();
    place.source->fill(seed);
    place.contents.resize(kBufferBytes);
    fill_pattern(place.contents, seed);
    for (std::size_t i = 0; i < kDestinations; ++i) {
      Destination& destination = place.destinations.emplace_back();
      destination.buffer = std::make_unique<TestBuffer>(driver(), node(), memory, kBufferBytes);
      destination.buffer->poison(kPoison);
    }
  }
  for (int i = 0; i < 12; ++i) sizes_.push_back(kMinBytes + below(kMaxBytes - kMinBytes));
  for (int i = 0; i < 2 * gpus(); ++i)
    streams_.push_back(std::make_unique<Stream>(stream_on(i % gpus())));
  std::vector<Request> all;
  for (const Place& from : places_)
    for (const Place& to : places_)
      if (from.memory != to.memory) context_->prepare({{from.memory, to.memory, kMaxBytes}});
  context_->wait_prepared();
  reset_sim_counters(driver());
}

Drawn GraphSoakTest::draw() {
  for (;;) {
    Drawn drawn;
    const std::uint64_t kind = below(10);
    if (kind < 2 && !before_.empty()) {
      drawn = before_[below(before_.size())];  // the same once more
    } else {
      if (kind < 8 && !batch_.empty()) {
        drawn = batch_.back();  // the same shape, other addresses
      } else {
        drawn.from = below(places_.size());
        drawn.to = below(places_.size());
        drawn.bytes = sizes_[below(sizes_.size())];
      }
      drawn.buffer = below(kDestinations);
      const std::uint64_t room = kBufferBytes - drawn.bytes - 2 * kGuard;
      drawn.src_offset = below(room);
      drawn.dst_offset = kGuard + below(room);
      drawn.stream = below(streams_.size());
    }
    const Place& from = places_[drawn.from];
    const Place& to = places_[drawn.to];
    if (drawn.from == drawn.to || to.destinations[drawn.buffer].in_use) continue;
    // On a stream of one of its GPUs, so that a native copy takes the link between the two.
    const MemoryId on = MemoryId::gpu(gpu_of(drawn.stream));
    if (from.memory == on || to.memory == on) return drawn;
  }
}

void GraphSoakTest::issue(const Drawn& drawn) {
  Place& from = places_[drawn.from];
  Place& to = places_[drawn.to];
  Destination& destination = to.destinations[drawn.buffer];
  destination.in_use = true;
  const CurrentContext current(driver(), context_of(gpu_of(drawn.stream)));
  const Traffic traffic(*context_);
  copy(*context_,
       {destination.buffer->address() + drawn.dst_offset, from.source->address() + drawn.src_offset,
        drawn.bytes, streams_[drawn.stream]->get()});
  ASSERT_EQ(traffic.split() + traffic.native(), 1u);
  ASSERT_EQ(traffic.bytes(), drawn.bytes);
  if (traffic.native() == 1) {
    ++native_;
    native_bytes_[{from.memory, to.memory}] += drawn.bytes;
  }
  bytes_ += drawn.bytes;
  batch_.push_back(drawn);
}

std::vector<std::byte> GraphSoakTest::contents(const TestBuffer& buffer, std::uint64_t offset,
                                               std::uint64_t bytes) const {
  static auto* const peek =
      driver_function<int(std::uint64_t, void*, std::uint64_t)>(driver(), "polypath_sim_peek");
  std::vector<std::byte> bytes_read(bytes);
  const CUdeviceptr address = buffer.address() + offset;
  if (buffer.memory().is_host()) {
    std::memcpy(bytes_read.data(), reinterpret_cast<const void*>(address), bytes);
  } else {
    EXPECT_EQ(peek(address, bytes_read.data(), bytes), 0);
  }
  return bytes_read;
}

void GraphSoakTest::finish_batch() {
  for (const auto& stream : streams_) synchronize(stream->get());
  const auto is_poison = [](std::byte byte) { return byte == std::byte{kPoison}; };
  for (const Drawn& drawn : batch_) {
    Destination& destination = places_[drawn.to].destinations[drawn.buffer];
    const auto bytes_read =
        contents(*destination.buffer, drawn.dst_offset - kGuard, drawn.bytes + 2 * kGuard);
    const std::byte* const expected = places_[drawn.from].contents.data() + drawn.src_offset;
    ASSERT_EQ(std::memcmp(bytes_read.data() + kGuard, expected, drawn.bytes), 0)
        << to_string(places_[drawn.from].memory) << " to " << to_string(places_[drawn.to].memory)
        << ", " << drawn.bytes << " bytes";
    ASSERT_TRUE(std::all_of(bytes_read.begin(), bytes_read.begin() + kGuard, is_poison));
    ASSERT_TRUE(std::all_of(bytes_read.end() - kGuard, bytes_read.end(), is_poison));
    const CUdeviceptr written = destination.buffer->address() + drawn.dst_offset;
    if (destination.buffer->memory().is_host()) {
      std::memset(reinterpret_cast<void*>(written), kPoison, drawn.bytes);
    } else {
      POLYPATH_CHECK(driver(),
                     memset_d8_async(written, kPoison, drawn.bytes, streams_.front()->get()));
    }
    destination.in_use = false;
  }
  synchronize(streams_.front()->get());
  before_ = std::exchange(batch_, {});
}

void GraphSoakTest::expect_links_as_counted() {
  auto* const link_bytes =
      driver_function<std::uint64_t(const char*, const char*)>(driver(), "polypath_sim_link_bytes");
  const auto counted = context_->counters().snapshot().links;
  for (std::size_t i = 0; i < node().links.size(); ++i) {
    const Link& link = node().links[i];
    std::uint64_t expected = native_bytes_[{link.from, link.to}];
    if (const auto entry = counted.find(static_cast<int>(i)); entry != counted.end())
      expected += entry->second.bytes;
    const std::string from = to_string(link.from);
    const std::string to = to_string(link.to);
    EXPECT_EQ(link_bytes(from.c_str(), to.c_str()), expected) << from << " to " << to;
    EXPECT_GT(expected, 0u) << from << " to " << to;
  }
}

TEST_F(GraphSoakTest, EveryByteOfEveryTransferArrives) {
  const Traffic traffic(*context_);
  for (std::uint64_t done = 0; done < kTransfers; ++done) {
    issue(draw());
    if (batch_.size() == kBatch || done + 1 == kTransfers) finish_batch();
    if (HasFailure()) return;
    if (batch_.empty() && below(8) == 0) {
      // A caller's stream ends, another takes its place.
      const std::size_t which = below(streams_.size());
      streams_[which] = std::make_unique<Stream>(stream_on(gpu_of(which)));
    }
  }
  for (const Place& place : places_)
    for (const Destination& destination : place.destinations) {
      const auto bytes_read = contents(*destination.buffer, 0, kBufferBytes);
      EXPECT_TRUE(
          std::ranges::all_of(bytes_read, [](std::byte b) { return b == std::byte{kPoison}; }))
          << "written outside of every transfer, in " << to_string(place.memory);
    }

  EXPECT_EQ(traffic.split() + traffic.native(), kTransfers);
  EXPECT_EQ(traffic.native(), native_);
  EXPECT_EQ(traffic.bytes(), bytes_);
  EXPECT_EQ(traffic.failed(), 0u);
  EXPECT_GT(traffic.split(), kTransfers / 4);
  expect_links_as_counted();
  const GraphUses now = uses_of(context_->graph_counts());
  SCOPED_TRACE(testing::PrintToString(now));
  EXPECT_EQ(now.hits + now.patches + now.builds, now.launches);
  // What found no graph went by streams; what was busy may have found a running one.
  EXPECT_LE(now.launches, traffic.split());
  EXPECT_GE(now.launches + now.busy, traffic.split());
  EXPECT_EQ(now.failed, 0u);
  EXPECT_GT(now.launches, kTransfers / 20);
  for (const std::uint64_t count : {now.hits, now.patches, now.evictions, now.busy})
    EXPECT_GT(count, 0u);
  EXPECT_EQ(now.cached, 4u);
  EXPECT_EQ(live_objects(driver()).graph_execs, 4u);
  EXPECT_EQ(driver_function<std::uint64_t()>(driver(), "polypath_sim_bounced_copies")(), 0u);
  EXPECT_EQ(driver_function<std::uint64_t()>(driver(), "polypath_sim_pageable_copies")(), 0u);
  context_.reset();
  EXPECT_EQ(graph_misuse(driver()), GraphMisuse{});
  EXPECT_EQ(live_objects(driver()).graph_execs, 0u);
}

}  // namespace
}  // namespace polypath::test
