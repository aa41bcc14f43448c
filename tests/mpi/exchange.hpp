// Runs phases of messages on MPI, from GPU memory to GPU memory, and looks at every byte.
#pragma once

#include <cstdint>
#include <functional>

#include "messages.hpp"
#include "rank_gpu.hpp"

namespace polypath::test {

class Exchange {
 public:
  /// Memory on the GPU for the largest of the phases.
  Exchange(const RankGpu& gpu, int rank, const std::vector<Phase>& phases);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Fills what this rank sends, and overwrites what it receives in with poison.
  void prepare(const Phase& phase);
  /// `started`: called when the messages are under way. Throws Error when an MPI call fails, or a
  /// status is not what was sent.
  void run(const Phase& phase, const std::function<void()>& started);
  /// Every byte received is what was sent, and all other bytes are still poison; Error otherwise.
  void verify(const Phase& phase);
  /// Puts other memory in the place of all: frees and then allocates, or the other way round, in
  /// turn.
  void reallocate();

 private:
  struct Memory {
    CUdeviceptr from = 0;
    CUdeviceptr to = 0;
  };
  [[nodiscard]] Memory allocate() const;
  void free(const Memory& memory) const;
  void run_blocking(const Phase& phase);
  void run_nonblocking(const Phase& phase, const std::function<void()>& started);
  void run_sendrecv(const Phase& phase);
  [[nodiscard]] void* address(const Message& message) const;

  const RankGpu& gpu_;
  int rank_;
  Extent most_;
  Memory memory_;
  bool frees_first_ = false;
  std::vector<std::byte> host_;
};

/// Throws Error with MPI's words unless `result` is MPI_SUCCESS.
void check_mpi(int result, const char* call);

}  // namespace polypath::test
