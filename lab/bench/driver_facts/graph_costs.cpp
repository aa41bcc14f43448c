#include <array>
#include <vector>

#include "base/units.hpp"
#include "exec/copy_graph.hpp"
#include "sections.hpp"
#include "tune/group_timer.hpp"

namespace polypath::facts {
namespace {

constexpr const char* kGraphCosts = "graph_costs";
constexpr std::uint64_t kSmallChunk = 64 * kKiB;
constexpr std::size_t kLaunches = 8;  ///< in a round, one after the other

/// What the copies of one chunk depend on.
enum class Order : std::uint8_t {
  pairs,      ///< a pair of copies a chunk, nothing between chunks
  own_first,  ///< also each leg in order; a leg's own predecessor listed first
  own_last,   ///< the same, listed last
  free_last,  ///< the first leg in order, the second after its chunk alone
};

/// One graph of chunks, each a copy from GPU 0 to a staging memory and one from there to the
/// destination.
class ChunkGraph {
 public:
  ChunkGraph(Workbench& bench, MemoryId staging, MemoryId to, int second_gpu)
      : bench_(bench),
        driver_(bench.driver()),
        second_gpu_(second_gpu),
        staging_is_host_(staging.is_host()),
        src_(bench.buffer(MemoryId::gpu(0), kMiB)),
        middle_(bench.buffer(staging, kMiB)),
        dst_(bench.buffer(to, kMiB)) {
    src_.fill(kSeed);
  }
  ~ChunkGraph() { destroy(); }
  ChunkGraph(const ChunkGraph&) = delete;
  ChunkGraph& operator=(const ChunkGraph&) = delete;

  void create() { POLYPATH_CHECK(driver_, graph_create(&graph_, 0)); }

  void add(int chunks, Order order) {
    nodes_.clear();
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const auto last = static_cast<std::size_t>(2 * (chunk - 1));
      const bool ordered = order != Order::pairs && chunk > 0;
      add_node(0, chunk, ordered ? std::vector{nodes_[last]} : std::vector<CUgraphNode>{});
      std::vector<CUgraphNode> after{nodes_.back()};
      if (ordered && order == Order::own_first) after.insert(after.begin(), nodes_[last + 1]);
      if (ordered && order == Order::own_last) after.push_back(nodes_[last + 1]);
      add_node(1, chunk, after);
    }
  }

  void instantiate() { POLYPATH_CHECK(driver_, graph_instantiate(&executable_, graph_, 0)); }
  void launch(CUstream stream) { POLYPATH_CHECK(driver_, graph_launch(executable_, stream)); }

  /// The same addresses anew, for every node.
  void patch() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const int leg = static_cast<int>(i % 2);
      const CUDA_MEMCPY3D what = parameters(leg, static_cast<int>(i / 2));
      POLYPATH_CHECK(
          driver_, graph_exec_memcpy_node_set_params(executable_, nodes_[i], &what, context(leg)));
    }
  }

  void destroy() {
    if (executable_ != nullptr) POLYPATH_WARN(driver_, graph_exec_destroy(executable_));
    if (graph_ != nullptr) POLYPATH_WARN(driver_, graph_destroy(graph_));
    executable_ = nullptr;
    graph_ = nullptr;
  }

  void verify(std::span<const CUstream> stream, int chunks) {
    const auto whole =
        std::min<std::uint64_t>(kMiB, static_cast<std::uint64_t>(chunks) * kSmallChunk);
    bench_.verify(stream, [&] { launch(stream.front()); }, dst_, kSeed, whole);
  }

 private:
  [[nodiscard]] CUcontext context(int leg) const {
    return bench_.context(leg == 0 ? 0 : second_gpu_);
  }

  [[nodiscard]] CUDA_MEMCPY3D parameters(int leg, int chunk) const {
    // More chunks than the buffers hold go round: the bytes are the same.
    const std::uint64_t offset = static_cast<std::uint64_t>(chunk) * kSmallChunk % kMiB;
    CUDA_MEMCPY3D what{};
    what.WidthInBytes = kSmallChunk;
    what.Height = what.Depth = 1;
    const CUdeviceptr middle = middle_.address() + offset;
    const CUmemorytype kind = staging_is_host_ ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    if (leg == 0) {
      what.srcMemoryType = CU_MEMORYTYPE_DEVICE;
      what.srcDevice = src_.address() + offset;
      what.dstMemoryType = kind;
      what.dstDevice = middle;
      what.dstHost = reinterpret_cast<void*>(middle);
    } else {
      what.srcMemoryType = kind;
      what.srcDevice = middle;
      what.srcHost = reinterpret_cast<const void*>(middle);
      what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      what.dstDevice = dst_.address() + offset;
    }
    return what;
  }

  void add_node(int leg, int chunk, const std::vector<CUgraphNode>& after) {
    const CUDA_MEMCPY3D what = parameters(leg, chunk);
    CUgraphNode node = nullptr;
    POLYPATH_CHECK(driver_, graph_add_memcpy_node(&node, graph_, after.data(), after.size(), &what,
                                                  context(leg)));
    nodes_.push_back(node);
  }

  Workbench& bench_;
  const CudaDriver& driver_;
  int second_gpu_;
  bool staging_is_host_;
  TestBuffer src_, middle_, dst_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
  std::vector<CUgraphNode> nodes_;
};

void show(Workbench& bench, Report& report, ChunkGraph& graph, const std::string& name, Order order,
          int nodes) {
  const CudaDriver& driver = bench.driver();
  const CurrentContext current(driver, bench.context(0));
  const std::array stream{bench.stream(0, 0)};
  const int chunks = nodes / 2;
  std::vector<double> create, add, instantiate, launch, patch, destroy;
  const auto timed = [&](std::vector<double>& samples, int calls, const auto& call) {
    const double start = bench.now_us();
    call();
    samples.push_back((bench.now_us() - start) / calls);
  };
  for (int round = 0; round < kRounds; ++round) {
    timed(create, 1, [&] { graph.create(); });
    timed(add, nodes, [&] { graph.add(chunks, order); });
    timed(instantiate, 1, [&] { graph.instantiate(); });
    graph.launch(stream[0]);
    POLYPATH_CHECK(driver, stream_synchronize(stream[0]));
    timed(launch, kLaunches, [&] {
      for (std::size_t i = 0; i < kLaunches; ++i) graph.launch(stream[0]);
    });
    POLYPATH_CHECK(driver, stream_synchronize(stream[0]));
    timed(patch, nodes, [&] { graph.patch(); });
    if (round == 0) graph.verify(stream, chunks);
    timed(destroy, 1, [&] { graph.destroy(); });
  }
  const std::string what = fmt::format("{}, {} nodes", name, nodes);
  report.figure(kGraphCosts, what + ": create", median(create), "us");
  report.figure(kGraphCosts, what + ": add", median(add), "us a node");
  report.figure(kGraphCosts, what + ": instantiate", median(instantiate), "us");
  report.figure(kGraphCosts, what + ": launch", median(launch), "us");
  report.figure(kGraphCosts, what + ": set addresses", median(patch), "us a node");
  report.figure(kGraphCosts, what + ": destroy", median(destroy), "us");
}

}  // namespace

void graph_costs(Workbench& bench, Report& report) {
  if (!has_memcpy_graphs(bench.driver()))
    return report.skipped(kGraphCosts, "graphs", "no graph calls");
  const int last = bench.gpus() - 1;
  ChunkGraph alone(bench, bench.host_of(0), MemoryId::gpu(0), 0);
  for (const int nodes : {2, 8, 16, 34, 64})
    show(bench, report, alone, "one GPU, pairs", Order::pairs, nodes);
  if (last < 1) return report.skipped(kGraphCosts, "two GPUs", "needs 2 GPUs");
  ChunkGraph two(bench, bench.host_of(0), MemoryId::gpu(last), last);
  for (const auto& [name, order] : {std::pair{"two GPUs, pairs", Order::pairs},
                                    {"two GPUs, own leg first", Order::own_first},
                                    {"two GPUs, own leg last", Order::own_last},
                                    {"two GPUs, second leg free", Order::free_last}})
    for (const int nodes : {8, 34}) show(bench, report, two, name, order, nodes);
}

}  // namespace polypath::facts
