// UNICONN's thread groups as those of polypath/device.
#pragma once

#include <type_traits>

#include "polypath/device/group.cuh"
#include "polypath/uniconn/enums.hpp"

namespace polypath::uniconn::detail {

template <ThreadGroup G>
using GroupOf = std::conditional_t<
    G == ThreadGroup::THREAD, device::this_thread,
    std::conditional_t<G == ThreadGroup::WARP, device::this_warp, device::this_block>>;

}  // namespace polypath::uniconn::detail
