// What a process has to know to put into another one's memory by UCX.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <vector>

namespace mpi_bench {

/// What one process tells its peers. While it is being sent it must stay where it is.
struct Introduction {
  std::uint64_t sink = 0;    ///< address of the memory
  std::vector<char> worker;  ///< address of the UCX worker
  std::vector<char> key;     ///< packed remote key of the memory

  /// Begins to send it; wait() ends that.
  void send(int peer);
  void wait();
  static Introduction receive(int peer);

 private:
  std::array<MPI_Request, 3> requests_ = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
};

}  // namespace mpi_bench
