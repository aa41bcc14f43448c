// libpolypath in this process, and one context of it.
#pragma once

#include "gate/polypath_api.hpp"

namespace polypath::nccl {

using preload::Engine;

/// Made when a program first creates a communicator. Null, with `*why` (if not null): no library,
/// or no GPU; the same answer from then on, and for the children of a process that has it. Any
/// thread.
const Engine* engine(const char** why) noexcept;

}  // namespace polypath::nccl
