// What `polypath tune comm` found on this node, as a policy.
#pragma once

#include "nccl/choice.hpp"
#include "nccl/engine.hpp"

namespace polypath::nccl {

/// Where polypath and NCCL were both measured, on the GPUs of these ranks; nothing where they were
/// not.
Policy measured_policy(const Engine& engine, polypath_comm* comm, int ranks) noexcept;

}  // namespace polypath::nccl
