// Stores to the memory of other GPUs, as the collectives' kernels make them: words of 16 bytes, a
// row of 512 bytes of each warp, eight words of a thread at once.
#include "peer_stores.hpp"

namespace polypath::facts {

/// A block has a share of what goes to each peer. Rows begin `shift` words before multiples of 4
/// KiB of the peer's memory.
extern "C" __global__ void __launch_bounds__(kStoringThreads)
    peer_stores(const __grid_constant__ StoresArgs args) {
  constexpr unsigned int kInFlight = 8;
  constexpr unsigned long long kGranule = 256;  // words
  const unsigned long long end = args.words + args.shift;
  const unsigned long long even = (end + gridDim.x - 1) / gridDim.x;
  const unsigned long long share = (even + kGranule - 1) / kGranule * kGranule;
  const unsigned long long begin = share * blockIdx.x;
  const unsigned long long limit = begin + share < end ? begin + share : end;
  for (unsigned int peer = 0; peer < args.peers; ++peer) {
    const uint4* const from = static_cast<const uint4*>(args.from);
    uint4* const to = static_cast<uint4*>(args.to[peer]);
    for (unsigned long long i = begin + threadIdx.x; i < limit; i += kInFlight * blockDim.x) {
      uint4 words[kInFlight];
#pragma unroll
      for (unsigned int k = 0; k < kInFlight; ++k) {
        const unsigned long long at = i + k * blockDim.x;
        if (at < limit && at >= args.shift) words[k] = __ldcg(from + at - args.shift);
      }
#pragma unroll
      for (unsigned int k = 0; k < kInFlight; ++k) {
        const unsigned long long at = i + k * blockDim.x;
        if (at < limit && at >= args.shift) __stcg(to + at - args.shift, words[k]);
      }
    }
  }
}

}  // namespace polypath::facts
