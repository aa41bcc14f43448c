// A matcher on a simulated node, and its arrays there.
#pragma once

#include <cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "matching_cases.hpp"
#include "polypath/messaging/matching.h"

namespace polypath::test {

inline constexpr std::uint32_t kPoison = 0xABADCAFE;

#define EXPECT_OK(call) EXPECT_EQ(POLYPATH_SUCCESS, call) << polypath_last_error()
#define EXPECT_REFUSED(text, call)                                \
  do {                                                            \
    EXPECT_EQ(POLYPATH_INVALID_ARGUMENT, call);                   \
    EXPECT_THAT(polypath_last_error(), testing::HasSubstr(text)); \
  } while (false)

/// Memory of the current GPU, with contents.
template <typename T>
class OnGpu {
 public:
  explicit OnGpu(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(CUDA_SUCCESS, cuMemAlloc(&at_, std::max<std::size_t>(1, count_ * sizeof(T))));
    if (count_ > 0) {
      EXPECT_EQ(CUDA_SUCCESS,
                cuMemcpy(at_, reinterpret_cast<CUdeviceptr>(values.data()), count_ * sizeof(T)));
    }
    EXPECT_EQ(CUDA_SUCCESS, cuStreamSynchronize(nullptr));
  }
  ~OnGpu() { cuMemFree(at_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  template <typename As = T>
  [[nodiscard]] As* get() const {
    return reinterpret_cast<As*>(at_);
  }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(count_);
    if (count_ > 0) {
      EXPECT_EQ(CUDA_SUCCESS,
                cuMemcpy(reinterpret_cast<CUdeviceptr>(values.data()), at_, count_ * sizeof(T)));
    }
    return values;
  }

 private:
  CUdeviceptr at_ = 0;
  std::size_t count_;
};

class MatchingApi : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_context_create(nullptr, 0, &context_))
        << polypath_last_error();
    const int gpu = 1;
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_comm_create_all(context_, &gpu, 1, nullptr, &comm_))
        << polypath_last_error();
    CUcontext primary = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, cuDevicePrimaryCtxRetain(&primary, gpu));
    ASSERT_EQ(CUDA_SUCCESS, cuCtxPushCurrent(primary));
    for (CUstream& stream : streams_)
      ASSERT_EQ(CUDA_SUCCESS, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  void TearDown() override {
    EXPECT_OK(polypath_matcher_destroy(matcher_));
    for (const CUstream stream : streams_) cuStreamDestroy(stream);
    CUcontext popped = nullptr;
    cuCtxPopCurrent(&popped);
    cuDevicePrimaryCtxRelease(1);
    EXPECT_OK(polypath_comm_destroy(comm_));
    polypath_context_destroy(context_);
  }
  void create(std::uint32_t capacity, polypath_match_order order = POLYPATH_ORDER_MPI,
              std::uint64_t launch_per_phase = 0) {
    EXPECT_OK(polypath_matcher_destroy(matcher_));
    const polypath_matcher_options options{order, capacity, launch_per_phase, {}};
    ASSERT_EQ(POLYPATH_SUCCESS, polypath_matcher_create(comm_, &options, &matcher_))
        << polypath_last_error();
  }
  void synchronize() {
    for (const CUstream stream : streams_) ASSERT_EQ(CUDA_SUCCESS, cuStreamSynchronize(stream));
  }

  struct Outcome {
    polypath_match_result outcome;
    std::vector<std::uint32_t> matched_message;
  };
  Outcome match(const Traffic& traffic) {
    const OnGpu messages(traffic.messages);
    const OnGpu receives(traffic.receives);
    const OnGpu results(std::vector<std::uint32_t>(traffic.receives.size() + 1, kPoison));
    const OnGpu outcomes(std::vector<polypath_match_result>(1));
    EXPECT_OK(polypath_match(matcher_, messages.template get<polypath_envelope>(),
                             traffic.messages.size(), receives.template get<polypath_envelope>(),
                             traffic.receives.size(), results.get(), outcomes.get(), streams_[0]));
    synchronize();
    Outcome outcome{outcomes.read()[0], results.read()};
    EXPECT_EQ(outcome.matched_message.back(), kPoison);
    outcome.matched_message.pop_back();
    return outcome;
  }

  struct Next {
    polypath_match_result outcome;
    std::vector<polypath_match_pair> pairs;
  };
  Next next(const std::vector<envelope>& added_messages,
            const std::vector<envelope>& added_receives, std::size_t room, unsigned stream = 0) {
    const OnGpu messages(added_messages);
    const OnGpu receives(added_receives);
    const OnGpu pairs(std::vector<polypath_match_pair>(room + 1, {kPoison, kPoison}));
    const OnGpu outcomes(std::vector<polypath_match_result>(1));
    EXPECT_OK(polypath_match_incremental(
        matcher_, messages.template get<polypath_envelope>(), added_messages.size(),
        receives.template get<polypath_envelope>(), added_receives.size(), pairs.get(),
        outcomes.get(), streams_[stream]));
    synchronize();
    Next next{outcomes.read()[0], pairs.read()};
    for (std::size_t i = next.outcome.matches; i < next.pairs.size(); ++i)
      EXPECT_EQ(next.pairs[i].message, kPoison) << "written behind the pairs";
    next.pairs.resize(next.outcome.matches);
    return next;
  }

  polypath_context* context_ = nullptr;
  polypath_comm* comm_ = nullptr;
  polypath_matcher* matcher_ = nullptr;
  CUstream streams_[2]{};
};

/// The message of each receive, from batches that are cut anywhere.
inline std::vector<std::uint32_t> carry(
    std::uint32_t capacity, const Traffic& traffic, std::uint64_t seed,
    const std::function<void(const std::vector<envelope>&, const std::vector<envelope>&,
                             std::vector<polypath_match_pair>&)>& next) {
  std::mt19937_64 random(seed);
  std::vector<polypath_match_pair> pairs;
  std::size_t message = 0;
  std::size_t receive = 0;
  while (message < traffic.messages.size() || receive < traffic.receives.size()) {
    const auto some = [&](std::size_t done, std::size_t all) {
      return std::min<std::size_t>(all - done, random() % (capacity / 6 + 2));
    };
    const std::size_t messages = some(message, traffic.messages.size());
    const std::size_t receives = some(receive, traffic.receives.size());
    const auto first_message = traffic.messages.begin() + static_cast<std::ptrdiff_t>(message);
    const auto first_receive = traffic.receives.begin() + static_cast<std::ptrdiff_t>(receive);
    next({first_message, first_message + static_cast<std::ptrdiff_t>(messages)},
         {first_receive, first_receive + static_cast<std::ptrdiff_t>(receives)}, pairs);
    message += messages;
    receive += receives;
  }
  std::vector<std::uint32_t> matched_message(traffic.receives.size(), kNone);
  for (const polypath_match_pair& pair : pairs) {
    EXPECT_LT(pair.receive, matched_message.size());
    if (pair.receive >= matched_message.size()) continue;
    EXPECT_EQ(matched_message[pair.receive], kNone) << "a receive twice";
    matched_message[pair.receive] = static_cast<std::uint32_t>(pair.message);
  }
  return matched_message;
}

}  // namespace polypath::test
