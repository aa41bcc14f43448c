// The lane kernel: every byte at every alignment, one copy after another on each lane, and no copy
// waits for one that has not started.
#include <array>
#include <deque>

#include "mesh_test.hpp"
#include "support/gate.hpp"
#include "tune/group_timer.hpp"
#include "tune/pattern.hpp"

namespace polypath::test {
namespace {

constexpr std::uint8_t kPoison = 0xA5;
constexpr std::uint64_t kWord = 16;  ///< the widest that the kernel moves

/// A small buffer on each side, to be copied within at many offsets.
class SmallCopies {
 public:
  SmallCopies(const CudaDriver& driver, const Node& node, MemoryId from, MemoryId to)
      : driver_(driver), src_(driver, node, from, kBytes), dst_(driver, node, to, kBytes) {
    src_.fill(kSeed);
    contents_.resize(kBytes);
    fill_pattern(contents_, kSeed);
  }

  static constexpr std::uint64_t kBytes = 64 * kKiB;

  void poison() { dst_.poison(kPoison); }
  [[nodiscard]] CUdeviceptr src(std::uint64_t offset) const { return src_.address() + offset; }
  [[nodiscard]] CUdeviceptr dst(std::uint64_t offset) const { return dst_.address() + offset; }

  /// [dst_at, + bytes) holds the source's [src_at, + bytes), everything else is poison.
  testing::AssertionResult arrived(std::uint64_t dst_at, std::uint64_t src_at,
                                   std::uint64_t bytes) const {
    const auto bytes_read = read_back(driver_, dst_, 0, kBytes);
    for (std::uint64_t at = 0; at < kBytes; ++at) {
      const bool copied = at >= dst_at && at < dst_at + bytes;
      const std::byte expected = copied ? contents_[at - dst_at + src_at] : std::byte{kPoison};
      if (bytes_read[at] != expected)
        return testing::AssertionFailure()
               << "byte " << at << " is " << std::to_integer<int>(bytes_read[at]) << " instead of "
               << std::to_integer<int>(expected);
    }
    return testing::AssertionSuccess();
  }

 private:
  static constexpr std::uint64_t kSeed = 77;
  const CudaDriver& driver_;
  TestBuffer src_;
  TestBuffer dst_;
  std::vector<std::byte> contents_;
};

class LaneKernelTest : public MeshTest {
 protected:
  /// Microseconds of copies that are issued at once, each on a stream of its own; the second run
  /// counts.
  double time_us(const std::vector<std::pair<const Payload*, Place>>& copies) {
    std::vector<Stream> owned;
    std::vector<CUstream> streams;
    for (const auto& [copy, place] : copies) {
      owned.push_back(stream_on(place.gpu));
      streams.push_back(owned.back().get());
    }
    GroupTimer timer(driver(), streams);
    const auto issue = [&] {
      for (std::size_t i = 0; i < copies.size(); ++i)
        launch(*copies[i].first, copies[i].second, streams[i]);
    };
    timer.run(issue);
    return timer.run(issue);
  }
};

TEST_F(LaneKernelTest, EveryAlignmentArrives) {
  SmallCopies copies(driver(), node(), from_, to_);
  const Stream push = stream_on(from_.index);
  const Stream pull = stream_on(to_.index);
  std::uint64_t number = 0;
  for (std::uint64_t src_at = 0; src_at < kWord; ++src_at)
    for (std::uint64_t dst_at = 0; dst_at < kWord; ++dst_at)
      for (const std::uint64_t bytes : {1, 7, 16, 33, 1025, 40001}) {
        SCOPED_TRACE(std::to_string(bytes) + " bytes from " + std::to_string(src_at) + " to " +
                     std::to_string(dst_at));
        ++number;
        set_lanes(static_cast<int>(number % 3) + 1);
        const bool pulls = number % 2 == 1;
        const CUstream stream = pulls ? pull.get() : push.get();
        copies.poison();
        launch(copies.dst(dst_at), copies.src(src_at), bytes, pulls ? pulled() : pushed(), stream);
        synchronize(stream);
        ASSERT_TRUE(copies.arrived(dst_at, src_at, bytes));
      }
}

TEST_F(LaneKernelTest, EverySizeArrivesWithAnyNumberOfLanes) {
  for (const int lanes : {1, 2, 3, 8, EmulatedLinks::kMaxLanes})
    for (const std::uint64_t bytes :
         {std::uint64_t{1}, kKiB - 1, kKiB, kKiB + 1, 8 * kKiB, 64 * kKiB - 1, 64 * kKiB + 17,
          kMiB + 5, 16 * kMiB, 33 * kMiB + 1}) {
      SCOPED_TRACE(std::to_string(bytes) + " bytes by " + std::to_string(lanes) + " lanes");
      set_lanes(lanes);
      const Payload data = payload({from_, to_, bytes});
      const Stream stream = stream_on(from_.index);
      launch(data, pushed(), stream.get());
      synchronize(stream.get());
      EXPECT_TRUE(data.arrived());
    }
}

TEST_F(LaneKernelTest, NothingIsCopiedForNoBytes) {
  const Payload data = payload({from_, to_, kKiB});
  const Stream stream = stream_on(from_.index);
  const Transfer transfer = data.transfer(stream.get());
  launch(transfer.dst, transfer.src, 0, pushed(), stream.get());
  synchronize(stream.get());
  EXPECT_TRUE(data.untouched());
}

TEST_F(LaneKernelTest, CopiesOverOneLinkFollowEachOther) {
  const Payload first = payload({from_, to_, kLarge});
  const Payload second = payload({from_, to_, kLarge});
  for (const int lanes : {1, 3}) {
    set_lanes(lanes);
    const double first_us = time_us({{&first, pushed()}});
    const double both = time_us({{&first, pushed()}, {&second, pushed()}});
    EXPECT_NEAR(both / first_us, 2, 0.2)
        << lanes << " lanes, pushed both: " << first_us << " us, " << both;
    EXPECT_TRUE(first.arrived());
    EXPECT_TRUE(second.arrived());
  }
}

TEST_F(LaneKernelTest, PullSharesTheLinkWithPush) {
  set_lanes(1);
  const Payload first = payload({from_, to_, kLarge});
  const Payload second = payload({from_, to_, kLarge});
  const double push = time_us({{&first, pushed()}});
  const double pull = time_us({{&second, pulled()}});
  const double both = time_us({{&first, pushed()}, {&second, pulled()}});
  EXPECT_NEAR(both / (push + pull), 1, 0.1) << push << " us, " << pull << ", " << both;
  EXPECT_TRUE(first.arrived());
  EXPECT_TRUE(second.arrived());
}

TEST_F(LaneKernelTest, TwoDirectionsShareNothing) {
  set_lanes(1);
  const Payload there = payload({from_, to_, kLarge});
  const Payload back_again = payload({to_, from_, kLarge});
  const double first_us = time_us({{&there, pushed()}});
  const double both = time_us({{&there, pushed()}, {&back_again, back()}});
  EXPECT_NEAR(both / first_us, 1, 0.15) << first_us << " us, " << both;
}

TEST_F(LaneKernelTest, LanesAddUp) {
  const double one_lane = one_lane_gbps();
  set_lanes(2);
  const Payload large = payload({from_, to_, kLarge});
  const double two = rate_gbps(kLarge, time_us({{&large, pushed()}}));
  EXPECT_NEAR(two / one_lane, 2, 0.2) << one_lane << " GB/s, " << two;
}

TEST_F(LaneKernelTest, ManyCopiesOfManyStreamsTakeTurns) {
  set_lanes(2);
  constexpr std::size_t kMany = 24;
  std::deque<Payload> payloads;
  std::vector<std::pair<const Payload*, Place>> copies;
  double bytes = 0;
  for (std::size_t i = 0; i < kMany; ++i) {
    const Payload& payload = add(payloads, {from_, to_, kMiB / 2 * (i + 1) + i, i % 3, i % 5});
    bytes += static_cast<double>(payload.shape().bytes);
    copies.emplace_back(&payload, i % 4 == 3 ? pulled() : pushed());
  }
  time_us(copies);
  for (const Payload& payload : payloads) EXPECT_TRUE(payload.arrived());
}

TEST_F(LaneKernelTest, HeldStream_HoldsNoOther) {
  if (driver().stream_wait_value32 == nullptr) GTEST_SKIP() << "no cuStreamWaitValue32";
  set_lanes(1);
  std::deque<Payload> held;
  for (int i = 0; i < 3; ++i) add(held, {from_, to_, 4 * kMiB});
  std::deque<Payload> free;
  for (int i = 0; i < 3; ++i) add(free, {from_, to_, 4 * kMiB});
  const Stream behind = stream_on(from_.index);
  const Stream push = stream_on(from_.index);
  const Stream pull = stream_on(to_.index);
  Gate gate(driver(), context_of(from_.index));

  gate.hold(behind.get(), context_of(from_.index));
  for (const Payload& payload : held) launch(payload, pushed(), behind.get());
  launch(free[0], pushed(), push.get());
  launch(free[1], pulled(), pull.get());
  ASSERT_TRUE(completes(push.get()));
  ASSERT_TRUE(completes(pull.get()));
  EXPECT_TRUE(free[0].arrived());
  EXPECT_TRUE(free[1].arrived());
  for (const Payload& payload : held) EXPECT_TRUE(payload.untouched());

  gate.open();
  launch(free[2], pushed(), push.get());
  ASSERT_TRUE(completes(behind.get()));
  ASSERT_TRUE(completes(push.get()));
  for (const Payload& payload : held) EXPECT_TRUE(payload.arrived());
  EXPECT_TRUE(free[2].arrived());
}

TEST_F(LaneKernelTest, ThereIsALinkBetweenTwoGpusOnly) {
  EXPECT_FALSE(links_->link_copy(0, 0, 1, from_.index, from_.index, from_.index).has_value());
  EXPECT_FALSE(links_->link_copy(0, 0, 1, from_.index, -1, from_.index).has_value());
}

}  // namespace
}  // namespace polypath::test
