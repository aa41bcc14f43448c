#include <fmt/format.h>

#include <array>
#include <functional>
#include <vector>

#include "base/units.hpp"
#include "driver/context_guard.hpp"
#include "gate.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

constexpr const char* kBetweenCopies = "between_copies";
constexpr std::uint64_t kCopies = 24;
/// Large enough that the CPU is ahead of the copies.
constexpr std::uint64_t kCopyBytes = 4 * kMiB;

/// Copies from GPU 0 to GPU 1 on one stream, with something before each.
class SpacedCopies {
 public:
  SpacedCopies(Workbench& bench, Report& report)
      : bench_(bench),
        driver_(bench.driver()),
        report_(report),
        src_(bench.buffer(MemoryId::gpu(0), kCopies * kCopyBytes)),
        dst_(bench.buffer(MemoryId::gpu(1), kCopies * kCopyBytes)),
        own_word_(bench.buffer(MemoryId::gpu(0), kWordBytes)),
        far_word_(bench.buffer(MemoryId::gpu(1), kWordBytes)),
        event_(driver_, bench.context(0), CU_EVENT_DISABLE_TIMING),
        other_event_(driver_, bench.context(0), CU_EVENT_DISABLE_TIMING) {
    src_.fill(kSeed);
    for (const TestBuffer* word : {&own_word_, &far_word_}) write(*word);
    {
      const CurrentContext current(driver_, bench.context(0));
      POLYPATH_CHECK(driver_, event_record(other_event_.get(), bench.stream(0, 1)));
    }
    finish(bench_);
    alone_us_ = time({});
    report_.figure(kBetweenCopies, "a copy of 4 MiB, in a row of them", alone_us_, "us");
  }

  using Calls = std::vector<std::function<void()>>;

  /// What `calls` before each copy cost it.
  void show(const std::string& what, const Calls& calls) {
    report_.figure(kBetweenCopies, what, time(calls) - alone_us_, "us more a copy");
  }

  [[nodiscard]] std::function<void()> wait_value() {
    return [this] {
      POLYPATH_CHECK(driver_,
                     stream_wait_value32(stream_[0], own_word_.address(),
                                         static_cast<cuuint32_t>(kValue), CU_STREAM_WAIT_VALUE_EQ));
    };
  }
  [[nodiscard]] std::function<void()> wait_event() {
    return
        [this] { POLYPATH_CHECK(driver_, stream_wait_event(stream_[0], other_event_.get(), 0)); };
  }
  [[nodiscard]] std::function<void()> record_event() {
    return [this] { POLYPATH_CHECK(driver_, event_record(event_.get(), stream_[0])); };
  }
  [[nodiscard]] std::function<void()> run_kernel() {
    return [this] {
      POLYPATH_CHECK(driver_,
                     memset_d8_async(own_word_.address() + kWordBytes / 2, 1, 4, stream_[0]));
    };
  }
  [[nodiscard]] std::function<void()> write_own() {
    return [this] { write(own_word_); };
  }
  [[nodiscard]] std::function<void()> write_far() {
    return [this] { write(far_word_); };
  }

 private:
  static constexpr std::uint64_t kWordBytes = 4 * kKiB;
  static constexpr cuuint64_t kValue = 1;

  void write(const TestBuffer& word) {
    const CurrentContext current(driver_, bench_.context(0));
    POLYPATH_CHECK(driver_, stream_write_value64(stream_[0], word.address(), kValue, 0));
  }

  double time(const Calls& calls) {
    const auto issue = [&] {
      for (std::uint64_t i = 0; i < kCopies; ++i) {
        const CurrentContext current(driver_, bench_.context(0));
        for (const auto& call : calls) call();
        const std::uint64_t at = i * kCopyBytes;
        bench_.copy(0, dst_.address() + at, src_.address() + at, kCopyBytes, stream_[0]);
      }
    };
    const double us = bench_.time(stream_, issue).device_us;
    bench_.verify(stream_, issue, dst_, kSeed, kCopies * kCopyBytes);
    return us / kCopies;
  }

  Workbench& bench_;
  const CudaDriver& driver_;
  Report& report_;
  TestBuffer src_, dst_, own_word_, far_word_;
  std::array<CUstream, 1> stream_{bench_.stream(0, 0)};
  Event event_, other_event_;  ///< recorded on this stream, and once on another
  double alone_us_ = 0;
};

}  // namespace

void between_copies(Workbench& bench, Report& report) {
  const auto skip = [&](const char* why) { report.skipped(kBetweenCopies, "all", why); };
  if (bench.gpus() < 2) return skip("needs 2 GPUs");
  const CudaDriver& driver = bench.driver();
  if (driver.stream_write_value64 == nullptr || driver.stream_wait_value32 == nullptr)
    return skip("streams write no values");
  int reaches = 0;
  POLYPATH_CHECK(driver, device_can_access_peer(&reaches, 0, 1));
  if (reaches == 0) return skip("GPU 0 cannot address GPU 1");
  SpacedCopies copies(bench, report);
  copies.show("with a wait for a value that is there", {copies.wait_value()});
  copies.show("with a wait for an event that has ended", {copies.wait_event()});
  copies.show("with an event recorded", {copies.record_event()});
  copies.show("with a kernel (a fill of 4 bytes)", {copies.run_kernel()});
  copies.show("with a value written here", {copies.write_own()});
  copies.show("with a value written on the other GPU", {copies.write_far()});
  copies.show("with a value written there, and a wait for one",
              {copies.write_far(), copies.wait_value()});
  copies.show("with a value written there, and a kernel",
              {copies.write_far(), copies.run_kernel()});
}

}  // namespace polypath::facts
