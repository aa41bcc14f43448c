// The one place that decides on which GPUs polypath may stage. A context there, and staging memory,
// are taken from the program and from other users of the GPU:
//
// - the first process that makes a context on a GPU of compute mode EXCLUSIVE_PROCESS keeps all
//   others away from it, so none is made there that the program has not made itself;
// - of a GPU's memory that is free now only a small part may be taken, what its context takes
//   included;
// - a context of every process on every GPU adds up, so on a GPU of many processes none is made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "driver/cuda_driver.hpp"
#include "driver/nvml.hpp"
#include "topology/node.hpp"

namespace polypath {

/// What is known of a GPU. Nothing is refused for what is not known.
struct StagingFacts {
  bool has_context = false;  ///< this process has one, made by polypath or not
  bool exclusive = false;    ///< compute mode EXCLUSIVE_PROCESS
  bool prohibited = false;   ///< compute mode PROHIBITED
  std::optional<std::uint64_t> free_bytes;
  std::optional<int> processes;  ///< that have contexts there, this one included
};

enum class StagingReason : std::uint8_t {
  allowed,
  exclusive,           ///< a context would keep other processes off the GPU
  prohibited,          ///< no contexts at all
  little_memory,       ///< too little is free
  too_many_processes,  ///< too many processes have contexts there
};
/// One line for people.
std::string_view to_string(StagingReason reason) noexcept;

/// `bytes`: of staging memory, to be allocated now.
StagingReason may_stage(const StagingFacts& facts, std::uint64_t bytes) noexcept;

/// Asks driver and NVML. `context`: the GPU's primary context if it is active, or null. Throws
/// DriverError. Takes up to milliseconds: not for a caller's path.
StagingFacts staging_facts(const CudaDriver& driver, const Nvml* nvml, const Gpu& gpu, int index,
                           CUcontext context);

/// What the policy refuses.
class StagingRefused : public DriverError {
 public:
  StagingRefused(int gpu, StagingReason reason);
};

}  // namespace polypath
