// Timing of pairs on a driver whose events show a time that the test sets.
#include "lab/pairs.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "base/error.hpp"
#include "tune/group_timer.hpp"

namespace polypath {
namespace {

struct FakeEvent {
  double us = 0;
};

double now_us = 0;
std::string log;  ///< what the driver was asked, one character each

CUstream stream(std::uintptr_t number) { return reinterpret_cast<CUstream>(number); }
FakeEvent& fake(CUevent event) { return *reinterpret_cast<FakeEvent*>(event); }

CudaDriver fake_driver() {
  CudaDriver driver;
  driver.get_error_name = [](CUresult, const char** name) {
    *name = "FAKE";
    return CUDA_SUCCESS;
  };
  driver.stream_get_ctx = [](CUstream, CUcontext* context) {
    *context = nullptr;
    return CUDA_SUCCESS;
  };
  driver.ctx_push_current = [](CUcontext) { return CUDA_SUCCESS; };
  driver.ctx_pop_current = [](CUcontext*) { return CUDA_SUCCESS; };
  driver.event_create = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(new FakeEvent);
    return CUDA_SUCCESS;
  };
  driver.event_destroy = [](CUevent event) {
    delete &fake(event);
    return CUDA_SUCCESS;
  };
  driver.event_record = [](CUevent event, CUstream) {
    fake(event).us = now_us;
    log += 'r';
    return CUDA_SUCCESS;
  };
  driver.stream_wait_event = [](CUstream, CUevent, unsigned) {
    log += 'w';
    return CUDA_SUCCESS;
  };
  driver.event_synchronize = [](CUevent) { return CUDA_SUCCESS; };
  driver.event_elapsed_time = [](float* milliseconds, CUevent start, CUevent end) {
    *milliseconds = static_cast<float>((fake(end).us - fake(start).us) / 1e3);
    return CUDA_SUCCESS;
  };
  driver.stream_synchronize = [](CUstream) {
    log += 's';
    return CUDA_SUCCESS;
  };
  now_us = 0;
  log.clear();
  return driver;
}

PairOptions options(int warmup, int iterations) {
  return {.warmup = warmup, .iterations = iterations, .clock = [] { return now_us; }};
}

TEST(Pairs, AlternateAndMeasureBoth) {
  const CudaDriver driver = fake_driver();
  std::string order;
  double native_us = 0;
  const std::array streams{stream(1)};
  const PairSamples samples = measure_pairs(
      driver, streams,
      [&] {
        order += 'n';
        now_us += native_us += 10;
      },
      [&] {
        order += 'p';
        now_us += 5;
      },
      options(1, 3));
  EXPECT_EQ(order, "npnpnpnp");
  ASSERT_EQ(samples.native.device_us.size(), 3u);
  EXPECT_NEAR(samples.native.device_us[0], 20, 1e-3);
  EXPECT_NEAR(samples.native.median_device_us(), 30, 1e-3);
  EXPECT_NEAR(samples.native.median_issue_us(), 30, 1e-9);
  EXPECT_NEAR(samples.polypath.median_device_us(), 5, 1e-3);
  EXPECT_EQ(samples.polypath.issue_us.size(), 3u);
}

TEST(Pairs, GroupForksOnceAndJoinsOnce) {
  const CudaDriver driver = fake_driver();
  const std::array streams{stream(1), stream(2), stream(3)};
  const auto issue = [&] { log += 'i'; };
  measure_pairs(driver, streams, issue, issue, options(0, 1));
  EXPECT_EQ(log, "rwwirwrwrrwwirwrwr");
}

TEST(Pairs, WorkAheadIsNotTimed) {
  const CudaDriver driver = fake_driver();
  const std::array streams{stream(1)};
  PairOptions behind_work = options(1, 1);
  behind_work.ahead = [&] {
    log += 'a';
    now_us += 100;
  };
  const auto issue = [&] {
    log += 'i';
    now_us += 5;
  };
  const PairSamples samples = measure_pairs(driver, streams, issue, issue, behind_work);
  EXPECT_EQ(log, "arirarirarirarir");
  EXPECT_NEAR(samples.native.median_device_us(), 5, 1e-3);
  EXPECT_NEAR(samples.native.median_issue_us(), 5, 1e-9);
}

TEST(Pairs, FailingCallable_EndsAfterStreamsAreIdle) {
  const CudaDriver driver = fake_driver();
  const std::array streams{stream(1), stream(2)};
  const auto fail = [] { throw Error("refused"); };
  EXPECT_THROW(measure_pairs(driver, streams, [] {}, fail, options(0, 1)), Error);
  EXPECT_EQ(log.substr(log.size() - 2), "ss");
}

TEST(Pairs, NeedAStreamAndAnIteration) {
  const CudaDriver driver = fake_driver();
  const std::array streams{stream(1)};
  EXPECT_THROW(measure_pairs(driver, {}, [] {}, [] {}, options(0, 1)), InvalidArgument);
  EXPECT_THROW(measure_pairs(driver, streams, [] {}, [] {}, options(0, 0)), InvalidArgument);
}

TEST(Median, TakesMiddleOrMeanOfTwoMiddle) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({8, 1, 2, 4}), 3);
}

}  // namespace
}  // namespace polypath
