#include "introduction.hpp"

namespace mpi_bench {
namespace {

constexpr int kSink = 110;  ///< tags
constexpr int kWorker = 111;
constexpr int kKey = 112;

void begin(const std::vector<char>& data, int peer, int tag, MPI_Request& request) {
  MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_CHAR, peer, tag, MPI_COMM_WORLD,
            &request);
}

std::vector<char> receive_text(int peer, int tag) {
  MPI_Status status;
  int bytes = 0;
  MPI_Probe(peer, tag, MPI_COMM_WORLD, &status);
  MPI_Get_count(&status, MPI_CHAR, &bytes);
  std::vector<char> data(static_cast<std::size_t>(bytes));
  MPI_Recv(data.data(), bytes, MPI_CHAR, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  return data;
}

}  // namespace

void Introduction::send(int peer) {
  MPI_Isend(&sink, 1, MPI_UINT64_T, peer, kSink, MPI_COMM_WORLD, &requests_[0]);
  begin(worker, peer, kWorker, requests_[1]);
  begin(key, peer, kKey, requests_[2]);
}

void Introduction::wait() {
  MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
}

Introduction Introduction::receive(int peer) {
  Introduction introduction;
  MPI_Recv(&introduction.sink, 1, MPI_UINT64_T, peer, kSink, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  introduction.worker = receive_text(peer, kWorker);
  introduction.key = receive_text(peer, kKey);
  return introduction;
}

}  // namespace mpi_bench
