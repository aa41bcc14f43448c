// What a kernel that gives up tells the host. C++17: shared with device code.
#pragma once

#include <cstdint>

namespace polypath {

/// In pinned host memory that the kernel can write. `given_up` is written last, behind a fence of
/// system scope, by the first block that gives up; the host reads the rest once it is not 0.
struct StatusRecord {
  static constexpr std::uint32_t kNobody = 0xFFFFFFFF;
  enum Reason : std::uint32_t {
    none = 0,
    time_limit = 1,  ///< a rank's data or signal did not come in time
    aborted = 2,     ///< the abort word was set: the reason is known elsewhere
    bad_state = 3    ///< what was found cannot be: a defect
  };

  std::uint32_t given_up;         ///< 0: no kernel gave up
  std::uint32_t kernel;           ///< as its launcher numbers them
  std::uint32_t reason;           ///< Reason
  std::uint32_t waited_for_rank;  ///< kNobody: for none
  std::uint32_t block;
  std::uint32_t reserved;
  std::uint64_t expected;  ///< what was waited for,
  std::uint64_t seen;      ///< and what was there last
};

}  // namespace polypath
