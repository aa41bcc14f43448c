// Latency between GPUs: in pairs a message goes there and another one back; in a ring one goes
// around.
#include "run_test.hpp"

namespace mpi_bench {
namespace {

/// One message along each flow, a rank after the other.
class RelayExchange final : public Exchange {
 public:
  /// `first`: this rank begins, the others wait for a message before they send one.
  RelayExchange(Flows flows, const Buffers& buffers, bool first)
      : flows_(std::move(flows)), buffers_(buffers), first_(first) {}

  [[nodiscard]] const Flows& flows() const noexcept override { return flows_; }

  void run(const Layout& layout) override {
    const int bytes = static_cast<int>(layout.bytes());
    if (first_) send(bytes);
    MPI_Recv(buffers_.sink.data(), bytes, MPI_BYTE, flows_.from[0].peer, flows_.from[0].tag,
             MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!first_) send(bytes);
  }

 private:
  void send(int bytes) const {
    MPI_Send(buffers_.source.data(), bytes, MPI_BYTE, flows_.to[0].peer, flows_.to[0].tag,
             MPI_COMM_WORLD);
  }

  Flows flows_;
  const Buffers& buffers_;
  bool first_;
};

int latency(const World& world, int argc, char** argv) {
  const auto options = read_options(world, argc, argv, /*windows=*/false,
                                    "mpi_latency: MPI_Send and MPI_Recv, one after the other");
  if (!options) return 0;
  const bool ring = options->pattern == Pattern::ring;
  const int rank = world.rank();
  const Flows flows = ring ? one_way(Pattern::ring, rank, world.size())
                           : both_ways(Pattern::pair, rank, world.size());
  Buffers buffers = make_buffers(world, *options, flows);
  RelayExchange exchange(flows, buffers, ring ? rank == 0 : rank % 2 == 0);
  const Quantity quantity{.hops = ring ? world.size() : 2};
  return run_test(world, *options, "mpi_latency", quantity, exchange, buffers);
}

}  // namespace
}  // namespace mpi_bench

int main(int argc, char** argv) { return mpi_bench::with_world(argc, argv, mpi_bench::latency); }
