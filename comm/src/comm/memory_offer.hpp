// What a rank tells the others of memory that they may open.
#pragma once

#include "comm/rank_error.hpp"
#include "comm/symmetric_memory.hpp"

namespace polypath {

struct SymmetricHeap::Offer {
  CUdeviceptr address = 0;
  CUipcMemHandle handle{};  ///< for ranks of other processes
  RankError problem;
};

}  // namespace polypath
