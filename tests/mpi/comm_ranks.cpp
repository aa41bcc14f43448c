// Ranks of MPI make a communicator by comm_mpi.h, and put to each other by it: prints "rank R of N:
// OK".
#include <cstddef>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "polypath/comm.hpp"
#include "polypath/comm_mpi.h"
#include "rank_gpu.hpp"

namespace {

std::vector<std::byte> message(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<std::byte> bytes(1'000'003);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

void run() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const polypath::test::RankGpu gpu(rank);
  polypath::context context;
  polypath_comm* handle = nullptr;
  polypath::detail::check(
      polypath_comm_create_mpi(context.get(), MPI_COMM_WORLD, gpu.index(), nullptr, &handle));
  polypath::communicator comm(handle);

  const std::vector<std::byte> payload = message(rank);
  const auto inbox = comm.alloc(payload.size());
  const auto words = comm.alloc(8);
  // On the default stream, after which a synchronous read comes.
  comm.put((rank + 1) % comm.size(), inbox, 0, payload.data(), payload.size(), words.signal(0, 1),
           nullptr);
  comm.wait_signal(words.signal(0, 1), nullptr);
  std::vector<std::byte> got(payload.size(), std::byte{0xEE});
  gpu.read(reinterpret_cast<CUdeviceptr>(inbox.address(rank)), got);
  comm.check();
  if (got != message((rank + comm.size() - 1) % comm.size())) throw std::runtime_error("bytes");
  std::printf("rank %d of %d: OK\n", comm.rank(), comm.size());
  comm.free(words);
  comm.free(inbox);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
