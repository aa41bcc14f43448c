// What host and device of the section peer_stores agree on. Plain data.
#pragma once

namespace polypath::facts {

inline constexpr unsigned int kMaxPeers = 15;
inline constexpr unsigned int kStoringThreads = 512;  // of a block

struct StoresArgs {
  const void* from;
  void* to[kMaxPeers];  ///< the same words to each, one after another
  unsigned int peers;
  unsigned int shift;        ///< words, by which rows begin before where they are aligned
  unsigned long long words;  ///< of 16 bytes, to each
};

}  // namespace polypath::facts
