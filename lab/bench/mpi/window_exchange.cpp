#include "window_exchange.hpp"

#include <utility>

namespace mpi_bench {
namespace {

constexpr int kAcknowledgement = 100;  ///< tag

}  // namespace

WindowExchange::WindowExchange(Flows flows, const Buffers& buffers, bool acknowledge)
    : flows_(std::move(flows)), buffers_(buffers), acknowledge_(acknowledge) {}

void WindowExchange::run(const Layout& layout) {
  const int bytes = static_cast<int>(layout.bytes());
  requests_.clear();
  const auto request = [this] { return &requests_.emplace_back(MPI_REQUEST_NULL); };
  for (std::size_t flow = 0; flow < flows_.from.size(); ++flow)
    for (int number = 0; number < layout.window(); ++number)
      MPI_Irecv(buffers_.sink.data() + layout.offset(flow, number), bytes, MPI_BYTE,
                flows_.from[flow].peer, flows_.from[flow].tag, MPI_COMM_WORLD, request());
  for (std::size_t flow = 0; flow < flows_.to.size(); ++flow)
    for (int number = 0; number < layout.window(); ++number)
      MPI_Isend(buffers_.source.data() + layout.offset(flow, number), bytes, MPI_BYTE,
                flows_.to[flow].peer, flows_.to[flow].tag, MPI_COMM_WORLD, request());
  MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  if (!acknowledge_) return;
  char none = 0;
  for (const Flow& flow : flows_.from)
    MPI_Send(&none, 1, MPI_CHAR, flow.peer, kAcknowledgement, MPI_COMM_WORLD);
  for (const Flow& flow : flows_.to)
    MPI_Recv(&none, 1, MPI_CHAR, flow.peer, kAcknowledgement, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

}  // namespace mpi_bench
