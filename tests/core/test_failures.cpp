// Every driver call of a transfer fails once, in turn: an error that names the call, or a verified native
// copy; nothing hangs, leaks or writes late, and the next transfer on the same context is right.
#include <gmock/gmock.h>

#include <deque>
#include <map>
#include <set>

#include "driver/fault_injection.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

/// The member of CudaDriver, by which errors name a call, for an exported name.
std::string member_of(const std::string& symbol) {
#define POLYPATH_CUDA(member, name, type, need) \
  if (symbol == (name)) return #member;
#include "driver/cuda_symbols.def"
  return "?";
}

class FailureTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    faults_.emplace(source().driver);
    // Contexts that the test itself keeps, so that the objects of the engine can be told apart.
    for (int gpu = 0; gpu < gpus(); ++gpu) context_of(gpu);
  }

  /// A context whose driver calls may fail.
  [[nodiscard]] std::unique_ptr<Context> make_context() const {
    NodeSource failing = source();
    failing.driver = faults_->driver();
    return std::make_unique<Context>(failing, arguments_);
  }
  /// A size that this context splits.
  [[nodiscard]] std::uint64_t bytes_for(MemoryId src, MemoryId dst) const {
    const auto context = make_context();
    return least_split(*context, src, dst).value_or(kMiB) + 1;
  }

  /// Runs `body`; a DriverError must name the call that was failed.
  template <typename Body>
  bool fails_by_name(Body&& body) {
    try {
      body();
      return false;
    } catch (const Error& error) {
      const std::string symbol = faults_->last_failed();
      EXPECT_THAT(error.what(), testing::AnyOf(testing::HasSubstr(symbol),
                                               testing::HasSubstr(member_of(symbol))));
      return true;
    }
  }

  /// Fails each driver call of one run of the transfers, on a fresh context each time.
  void fail_each_call(const std::vector<Request>& requests);

  /// Waits for everything, and asserts that nothing is written any more.
  void expect_quiet(const std::deque<Payload>& payloads) {
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      const CurrentContext current(driver(), context_of(gpu));
      POLYPATH_CHECK(driver(), ctx_synchronize());
    }
    for (const Payload& one : payloads) EXPECT_TRUE(one.untouched()) << "written late";
  }

  /// A context whose calls failed may have left another one current.
  void use_first_gpu() { POLYPATH_CHECK(driver(), ctx_set_current(context_of(0))); }

  std::optional<FaultInjector> faults_;
  OptionArguments arguments_{{"chunks", "2"}};  ///< few chunks make few calls
};

void FailureTest::fail_each_call(const std::vector<Request>& requests) {
  std::deque<Payload> payloads;
  std::deque<Stream> streams;
  std::vector<Transfer> transfers;
  for (const auto& [src, dst, bytes] : requests) {
    const Payload& one = add(payloads, {src, dst, bytes});
    streams.push_back(stream_on(src.is_gpu() ? src.index : dst.index));
    transfers.push_back(one.transfer(streams.back().get()));
  }
  const auto poison = [&] {
    for (Payload& one : payloads) one.renew(random_());
  };
  const auto wait = [&] {
    for (const Stream& stream : streams) ASSERT_TRUE(completes(stream.get()));
  };

  const LiveObjects before = live_objects(driver());
  std::uint64_t calls = 1;
  for (std::uint64_t failing = 0; failing <= calls; ++failing) {
    use_first_gpu();
    auto context = make_context();
    for (const Request& request : requests)
      if (request.src != request.dst) context->prepare({request});
    faults_->clear();
    if (failing > 0) faults_->fail_call(failing, CUDA_ERROR_UNKNOWN);
    poison();
    const Traffic traffic(*context);
    const bool failed = fails_by_name([&] { context->group_copy_async(transfers); });
    // Round 0 only counts.
    if (failing == 0) calls = faults_->calls();
    const std::string symbol = faults_->last_failed();
    use_first_gpu();
    SCOPED_TRACE("call " + std::to_string(failing) + " of " + std::to_string(calls) + ": " +
                 symbol);
    EXPECT_EQ(symbol.empty(), failing == 0);
    faults_->clear();
    wait();
    if (HasFatalFailure()) return;
    if (!failed) {
      for (const Payload& one : payloads) EXPECT_TRUE(one.arrived());
    }
    EXPECT_EQ(traffic.failed(), failed ? 1u : 0u);
    poison();
    expect_quiet(payloads);

    EXPECT_NO_THROW(context->group_copy_async(transfers)) << "the next transfer";
    wait();
    if (HasFatalFailure()) return;
    for (const Payload& one : payloads) EXPECT_TRUE(one.arrived()) << "of the next transfer";
    context.reset();
    EXPECT_EQ(live_objects(driver()), before);
    if (HasFailure()) return;  // one call at a time
  }
}

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
