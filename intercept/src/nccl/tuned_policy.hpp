// What `polypath tune backend` found on this node, as a policy.
#pragma once

#include "nccl/engine.hpp"
#include "nccl/offload_policy.hpp"

namespace polypath::nccl {

/// Whether the profile of this rank knows any backend's times, on whatever GPUs.
bool has_measured(const Engine& engine) noexcept;

/// Where polypath and NCCL were both measured, on the GPUs of these ranks; nothing where they were
/// not.
Policy measured_policy(const Engine& engine, polypath_comm* comm, int ranks) noexcept;

}  // namespace polypath::nccl
