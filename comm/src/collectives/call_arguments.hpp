// What is wrong with the arguments of a collective call, before anything is issued. Throw
// InvalidArgument, which names the rank and the argument.
#pragma once

#include <cstdint>

#include "collectives/collectives.hpp"
#include "driver/cuda_driver.hpp"

namespace polypath {

/// The bytes of a call's count: of the whole message, or of one rank's part of it; of uneven parts
/// the longest.
std::uint64_t bytes_of(const CollectiveCall& call);
bool has_root(CollectiveOp op);

/// What a rank sends and receives.
struct OperandBytes {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};
OperandBytes operand_bytes(const CollectiveCall& call, int rank, int size);

/// Throws RefusedBuffers where `require` throws InvalidArgument.
template <typename Require>
void require_of_buffers(const Require& require) {
  try {
    require();
  } catch (const InvalidArgument& error) {
    throw RefusedBuffers(error.what());
  }
}

struct CallerRank {
  int rank = 0;
  int size = 1;
  int gpu = 0;  ///< as this process numbers them
};

void require_root(const CollectiveCall& call, int rank, int size);
/// Root and count: what all ranks give alike.
void require_alike(const CollectiveCall& call, int rank, int size);
/// The buffers of a call that is alike, as comm.h says what they have to be.
void require_buffers(const CudaDriver& driver, const CollectiveCall& call,
                     const CallerRank& caller);
/// One of them: `bytes` at `address`, a multiple of `alignment`.
void require_buffer(const CudaDriver& driver, const CallerRank& caller, const char* name,
                    CUdeviceptr address, std::uint64_t bytes, std::size_t alignment);
/// For a call that runs by copies: received data may arrive before the data there are sent.
void require_parts_apart(const CollectiveCall& call, int rank, int size);

}  // namespace polypath
