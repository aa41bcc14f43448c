// Every driver call of a transfer fails once, in turn: an error that names the call, or a verified native
// copy; nothing hangs, leaks or writes late, and the next transfer on the same context is right.
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "failure_test.hpp"

namespace polypath::test {
namespace {

TEST_F(FailureTest, EachCallOfATransferBetweenGpus) {
  arguments_ = {{"chunk_size", "64K"}};  // enough chunks to use slots again
  const std::uint64_t bytes = bytes_for(MemoryId::gpu(0), far());
  fail_each_call({{MemoryId::gpu(0), far(), bytes}});
}

TEST_F(FailureTest, EachCallOfATransferFromTheHost) {
  const std::uint64_t bytes = bytes_for(MemoryId::host(0), MemoryId::gpu(0));
  fail_each_call({{MemoryId::host(0), MemoryId::gpu(0), bytes}});
}

TEST_F(FailureTest, EachCallOfAGroup) {
  const std::uint64_t bytes = bytes_for(MemoryId::gpu(0), far());
  fail_each_call({{MemoryId::gpu(0), far(), bytes},
                  {MemoryId::host(0), MemoryId::gpu(0), bytes},
                  {far(), MemoryId::gpu(0), bytes}});
}

TEST_F(FailureTest, EachCallOfANativeCopy) {
  fail_each_call({{MemoryId::gpu(0), far(), 100}, {MemoryId::gpu(0), MemoryId::gpu(0), 100}});
}

TEST_F(FailureTest, EachCallOfPreparing) {
  const std::vector<Request> requests{
      {MemoryId::gpu(0), far(), bytes_for(MemoryId::gpu(0), far())}};
  Payload one = payload({requests[0].src, requests[0].dst, requests[0].bytes});
  const Stream stream = stream_on(0);
  const LiveObjects before = live_objects(driver());
  std::uint64_t calls = 1;
  for (std::uint64_t failing = 0; failing <= calls; ++failing) {
    use_first_gpu();
    auto context = make_context();
    faults_->clear();
    if (failing > 0) faults_->fail_call(failing, CUDA_ERROR_OUT_OF_MEMORY);
    const bool failed = fails_by_name([&] { context->prepare(requests); });
    if (failing == 0) calls = faults_->calls();
    SCOPED_TRACE("call " + std::to_string(failing) + " of " + std::to_string(calls) + ": " +
                 faults_->last_failed());
    // Only putting the caller's context back may fail without being reported.
    if (!failed) {
      EXPECT_THAT(faults_->last_failed(), testing::AnyOf("", "cuCtxSetCurrent"));
    }
    faults_->clear();
    use_first_gpu();

    one.renew(random_());
    EXPECT_NO_THROW(context->copy_async(one.transfer(stream.get())));
    ASSERT_TRUE(completes(stream.get()));
    EXPECT_TRUE(one.arrived());

    EXPECT_NO_THROW(context->prepare(requests)) << "tried again";
    one.renew(random_());
    const Traffic traffic(*context);
    EXPECT_NO_THROW(context->copy_async(one.transfer(stream.get())));
    ASSERT_TRUE(completes(stream.get()));
    EXPECT_TRUE(one.arrived());
    const Plan plan = context->plan(requests);
    EXPECT_TRUE(plan.native() ? traffic.went_natively(NativeReason::no_gain, plan.bytes())
                              : traffic.went_as(plan));
    context.reset();
    EXPECT_EQ(live_objects(driver()), before);
    if (HasFailure()) return;
  }
}

TEST_F(FailureTest, CallsOfPreparingInTheBackground) {
  const std::uint64_t bytes = bytes_for(MemoryId::gpu(0), far());
  Payload one = payload({MemoryId::gpu(0), far(), bytes});
  const Stream stream = stream_on(0);
  const LiveObjects before = live_objects(driver());
  std::map<std::string, std::uint64_t> calls;
  // One transfer asks for routes; it and the background thread run at once, so the fault meets either.
  const auto run = [&](const std::string& symbol, std::uint64_t nth) {
    SCOPED_TRACE("call " + std::to_string(nth) + " of " + symbol);
    use_first_gpu();
    auto context = make_context();
    one.renew(random_());
    faults_->clear();
    if (nth > 0) faults_->fail(symbol, nth, CUDA_ERROR_OUT_OF_MEMORY);
    const bool failed = fails_by_name([&] { context->copy_async(one.transfer(stream.get())); });
    context->wait_prepared();
    if (nth == 0) calls = faults_->calls_by_symbol();
    faults_->clear();
    use_first_gpu();
    ASSERT_TRUE(completes(stream.get()));
    if (!failed) {
      EXPECT_TRUE(one.arrived());
    }
    for (int next = 0; next < 2; ++next) {
      one.renew(random_());
      EXPECT_NO_THROW(context->copy_async(one.transfer(stream.get())));
      ASSERT_TRUE(completes(stream.get()));
      EXPECT_TRUE(one.arrived());
      context->wait_prepared();
    }
    context.reset();
    EXPECT_EQ(live_objects(driver()), before);
  };
  run("", 0);  // only counts
  for (const auto& [symbol, count] : calls) {
    for (const std::uint64_t nth : std::set<std::uint64_t>{1, 2, (count + 1) / 2, count}) {
      if (nth <= count) run(symbol, nth);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace polypath::test
