#include "failure_test.hpp"

namespace polypath::test {

/// Requests with buffers, and streams on their sources.
struct FailureTest::Transfers {
  Transfers(FailureTest& test, const std::vector<Request>& requests) : test_(test) {
    for (const auto& [src, dst, bytes, is_pageable] : requests) {
      const Payload& payload = test.add(payloads, {src, dst, bytes});
      streams_.push_back(test.stream_on(src.is_gpu() ? src.index : dst.index));
      transfers.push_back(payload.transfer(streams_.back().get()));
    }
  }
  void poison() {
    for (Payload& payload : payloads) payload.renew(test_.random_());
  }
  void wait() {
    for (const Stream& stream : streams_) ASSERT_TRUE(test_.completes(stream.get()));
  }
  void expect_arrived(const char* which) const {
    for (const Payload& payload : payloads) EXPECT_TRUE(payload.arrived()) << which;
  }

  std::deque<Payload> payloads;
  std::vector<Transfer> transfers;

 private:
  FailureTest& test_;
  std::deque<Stream> streams_;
};

std::string FailureTest::member_of(const std::string& symbol) {
#define POLYPATH_CUDA(member, name, type, need) \
  if (symbol == (name)) return #member;
#include "driver/cuda_symbols.def"
  return "?";
}

void FailureTest::SetUp() {
  SimulatedTest::SetUp();
  if (IsSkipped()) return;
  faults_.emplace(source().driver);
  // Contexts that the test itself keeps, so that the objects of the engine can be told apart.
  for (int gpu = 0; gpu < gpus(); ++gpu) context_of(gpu);
}

std::unique_ptr<Context> FailureTest::make_context() const {
  NodeSource failing = source();
  failing.driver = faults_->driver();
  return std::make_unique<Context>(failing, arguments_);
}

void FailureTest::expect_quiet(const std::deque<Payload>& payloads) {
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    const CurrentContext current(driver(), context_of(gpu));
    POLYPATH_CHECK(driver(), ctx_synchronize());
  }
  for (const Payload& payload : payloads) EXPECT_TRUE(payload.untouched()) << "written late";
}

FailureTest::Ending FailureTest::ending_of(Context& context, const Traffic& traffic,
                                           std::uint64_t launches, bool failed) {
  if (failed) return Ending::error;
  if (context.graph_counts().launches > launches) return Ending::graph;
  return traffic.split() > 0 ? Ending::streams : Ending::native;
}

void FailureTest::fail_each_call(const std::vector<Request>& requests,
                                 const std::vector<Request>& earlier, bool same_buffers) {
  Transfers run(*this, requests);
  Transfers first(*this, same_buffers ? std::vector<Request>{} : earlier);
  std::vector<Request> between_memories;
  for (const Request& request : requests)
    if (request.src != request.dst) between_memories.push_back(request);
  LiveObjects before = live_objects(driver());
  std::uint64_t calls = 1;
  endings_.clear();
  for (std::uint64_t failing = 0; failing <= calls; ++failing) {
    use_first_gpu();
    reset_sim_counters(driver());
    auto context = make_context();
    context->prepare(between_memories);
    if (!earlier.empty()) {
      Transfers& batch = same_buffers ? run : first;
      batch.poison();
      context->group_copy_async(batch.transfers);
      batch.wait();
      batch.expect_arrived("of the earlier transfer");
    }
    const GraphCache::Counts graphs = context->graph_counts();
    run.poison();
    faults_->clear();
    if (failing > 0) faults_->fail_call(failing, CUDA_ERROR_UNKNOWN);
    const Traffic traffic(*context);
    const bool failed = fails_by_name([&] { context->group_copy_async(run.transfers); });
    const std::string symbol = faults_->last_failed();
    // Round 0 only counts.
    if (failing == 0) {
      calls = faults_->calls();
      unfailed_ = context->graph_counts();
      is_all_split_ = traffic.native() == 0;
    }
    faults_->clear();
    use_first_gpu();
    SCOPED_TRACE("call " + std::to_string(failing) + " of " + std::to_string(calls) + ": " +
                 symbol);
    EXPECT_EQ(symbol.empty(), failing == 0);
    run.wait();
    if (HasFatalFailure()) return;
    if (!failed) run.expect_arrived("");
    EXPECT_EQ(traffic.failed(), failed ? 1u : 0u);
    if (failing > 0) endings_[ending_of(*context, traffic, graphs.launches, failed)].insert(symbol);
    run.poison();
    expect_quiet(run.payloads);

    EXPECT_NO_THROW(context->group_copy_async(run.transfers)) << "the next transfer";
    run.wait();
    if (HasFatalFailure()) return;
    run.expect_arrived("of the next transfer");
    context.reset();
    // What the driver did not destroy is there still.
    if (symbol == "cuGraphExecDestroy") ++before.graph_execs;
    if (symbol == "cuGraphDestroy") ++before.graphs;
    EXPECT_EQ(live_objects(driver()), before);
    EXPECT_EQ(graph_misuse(driver()), GraphMisuse{});
    if (HasFailure()) return;  // one call at a time
  }
}

}  // namespace polypath::test
