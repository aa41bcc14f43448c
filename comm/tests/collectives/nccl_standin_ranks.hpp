// What the sources of the library that stands in for NCCL share.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace nccl_standin {

struct Id {
  std::array<char, 128> bytes;
};

struct Comm;

struct Message {
  bool is_send;
  void* device;  ///< null: what is received stays in pinned memory
  std::size_t bytes;
  int node;
  Comm* comm;
  unsigned char* pinned = nullptr;
  std::uint64_t number = 0;  ///< of those to that node, once it was sent
};

struct Comm {
  int id = 0;
  int node = 0;
  int nodes = 0;
  int gpu = 0;
  bool is_aborted = false;
  CUevent latest = nullptr;  ///< after the latest group of sends and receives
};

/// A reduction: what all have sent, combined into the first.
struct Combine {
  int type = 0;
  int op = 0;
  std::size_t count = 0;
};

/// Rank `node` of the communicator with this number, on the current GPU.
Comm* make_comm(int id, int node, int nodes);
int new_id();
/// Pinned memory and copies on the stream around what is sent and received; what is received is
/// combined for `result`.
int issue(std::vector<Message> messages, std::optional<Combine> combined, void* result,
          std::size_t result_bytes, CUstream stream);
std::size_t bytes_of(int type);
/// Where a kernel begins calls (nccl_standin_kernels.cpp): what that takes, before the ranks meet.
void prepare_kernels(const Comm& comm);
/// Then a kernel on the stream, which waits for those of the other ranks.
void wait_for_all(const Comm& comm, CUstream stream);
/// One more call of the function.
void note(const char* function);

}  // namespace nccl_standin
