#include "graph_cache_test.hpp"

#include "core/pointer_info.hpp"

namespace polypath::test {
namespace {

constexpr MemoryId kSource = MemoryId::gpu(0);
constexpr MemoryId kDestination = MemoryId::gpu(1);
constexpr MemoryId kStaging = MemoryId::gpu(2);

std::shared_ptr<const TransferSchedule> make_schedule(const Node& node, std::uint64_t bytes) {
  const std::uint64_t half = bytes / 2;
  const std::uint64_t rest = bytes - half;
  const int direct = node.find_link(kSource, kDestination).value();
  const int there = node.find_link(kSource, kStaging).value();
  const int on = node.find_link(kStaging, kDestination).value();
  auto schedule = std::make_shared<TransferSchedule>();
  schedule->request = {kSource, kDestination, bytes};
  schedule->routes = {{RouteKind::direct, {}, {direct}},
                      {RouteKind::via_gpu, kStaging, {there, on}}};
  Step step;
  step.link = direct;
  step.to.buffer = BufferKind::output;
  step.bytes = half;
  schedule->add(step, {});
  step.queue = 2;
  step.link = there;
  step.from.offset = half;
  step.to = {.buffer = BufferKind::scratch, .owner = 1};
  step.bytes = rest;
  const int writer = schedule->add(step, {});
  step.queue = 3;
  step.link = on;
  step.from = step.to;
  step.to = {.buffer = BufferKind::output, .offset = half};
  schedule->add(step, {&writer, 1});
  set_hash(*schedule);
  return schedule;
}

}  // namespace

GraphCacheTest::Message::Message(const CudaDriver& driver, const Node& node, std::uint64_t bytes,
                                 std::uint64_t seed)
    : payload(driver, node, {kSource, kDestination, bytes, 3, 5}, seed),
      staging(driver, node, kStaging, bytes) {}

void GraphCacheTest::SetUp() {
  SimulatedTest::SetUp();
  if (IsSkipped()) return;
  if (gpus() < 3) GTEST_SKIP() << "needs three GPUs";
  cache_driver_ = source().driver;
  devices_ = std::make_unique<Devices>(source().driver, nullptr, node());
  events_ = std::make_unique<EventPool>(source().driver, *devices_);
  for (const auto& [from, to] : {std::pair{0, 1}, std::pair{0, 2}, std::pair{2, 1}})
    devices_->enable_peer_access(from, to);
  reset_sim_counters(driver());
}

void GraphCacheTest::TearDown() {
  if (devices_ != nullptr) {
    cache_.reset();
    EXPECT_EQ(graph_misuse(driver()), GraphMisuse{});
    EXPECT_EQ(live_objects(driver()).graph_execs, 0u);
    EXPECT_EQ(live_objects(driver()).graphs, 0u);
  }
  SimulatedTest::TearDown();
}

void GraphCacheTest::make_cache(int capacity) {
  cache_.reset();
  cache_.emplace(cache_driver_, capacity);
}

GraphCacheTest::Message& GraphCacheTest::add_message(std::uint64_t bytes) {
  return messages_.emplace_back(driver(), node(), bytes, random_());
}

GraphRequest GraphCacheTest::request(const Message& message, const TestBuffer& staging) {
  const Transfer transfer = message.payload.transfer(nullptr);
  GraphRequest request;
  request.schedule = make_schedule(node(), transfer.bytes);
  request.gpu = 0;
  const std::uint64_t half = transfer.bytes / 2;
  const CUdeviceptr slot = staging.address();
  request.places = {{transfer.dst, transfer.src, 0, context_of(0)},
                    {slot, transfer.src + half, 0, context_of(0)},
                    {transfer.dst + half, slot, 2, context_of(2)}};
  request.dst_buffer = inspect(driver(), transfer.dst).buffer;
  request.src_buffer = inspect(driver(), transfer.src).buffer;
  return request;
}

std::shared_ptr<TransferState> GraphCacheTest::ticket(CUstream stream) {
  CallerStream caller{context_of(0), stream, 0};
  POLYPATH_CHECK(driver(), stream_get_id(stream, &caller.id));
  return std::make_shared<TransferState>(caller, std::make_shared<PooledEvent>(*events_, 0));
}

bool GraphCacheTest::launch(const GraphRequest& request, CUstream stream) {
  const std::shared_ptr<TransferState> transfer = ticket(stream);
  CachedGraph* const graph = cache_->acquire(request, *transfer);
  if (graph == nullptr) return false;
  transfer->record(driver());
  auto end = std::make_shared<PooledEvent>(*events_, 0);
  graph->graph->launch(stream);
  POLYPATH_CHECK(driver(), event_record(end->get(), stream));
  cache_->launched(*graph, transfer, std::move(end));
  return true;
}

void GraphCacheTest::expect_launch(Message& message, CUstream stream) {
  message.payload.renew(random_());
  ASSERT_TRUE(launch(message, stream));
  ASSERT_TRUE(completes(stream));
  EXPECT_TRUE(message.payload.arrived());
}

}  // namespace polypath::test
