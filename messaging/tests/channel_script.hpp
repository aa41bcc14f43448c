// Random calls of a channel by all ranks, what the literal rule of MPI says becomes of them, and a
// run of them on simulated GPUs.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "channel_kernels.h"
#include "channel_memory.hpp"

namespace polypath::test {

struct ChannelCase {
  const char* name;
  Members members;
  ChannelShape shape;
  unsigned messages;         ///< to each rank, in each context
  bool any_sources = false;  ///< receives of one half of the tags take any source
  unsigned max_bytes = 3000;
};

/// The calls of one case and seed, in the memory they use.
class ChannelScript {
 public:
  ChannelScript(const ChannelCase& test_case, std::uint64_t seed);
  /// Empty, or what was wrong.
  std::string run();

 private:
  struct Message {
    std::uint32_t source;
    std::uint32_t to;
    std::uint32_t tag;
    std::uint32_t bytes;
    std::uint32_t request;  ///< of its sender
    unsigned char* data;
  };
  struct Receive {
    std::uint32_t source;  ///< or any
    std::uint32_t tag;     ///< or any
    std::uint32_t capacity;
    std::uint32_t request;
    unsigned char* data;
    int match = -1;  ///< by the rule; -1 with any source: open
  };
  /// The state of one rank in one context.
  struct Part {
    std::vector<Message> sends;  ///< in their order
    std::vector<Receive> receives;
    std::vector<ChannelOp> calls;
    std::vector<ChannelResult> results;
  };

  void draw(std::uint32_t context);
  void draw_receives(std::uint32_t context, std::uint32_t rank);
  bool match(std::uint32_t context, std::uint32_t rank);
  void make_calls(Part& part);
  std::string check(std::uint32_t context, std::uint32_t rank);
  std::string check_one(const Receive& receive, const ChannelResult& result,
                        const Message& message) const;
  std::vector<Message> messages_to(std::uint32_t context, std::uint32_t rank) const;
  Part& part(std::uint32_t context, std::uint32_t rank) {
    return parts_[context * case_.shape.ranks + rank];
  }
  [[nodiscard]] const Part& part(std::uint32_t context, std::uint32_t rank) const {
    return parts_[context * case_.shape.ranks + rank];
  }
  unsigned char* take(std::uint32_t rank, std::uint32_t bytes);
  unsigned below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }

  ChannelCase case_;
  std::uint64_t seed_;
  std::mt19937_64 random_;
  ChannelMemory memory_;
  std::vector<std::size_t> taken_;
  std::vector<Part> parts_;
};

}  // namespace polypath::test
