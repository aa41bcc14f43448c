// UNICONN's thread groups as those of polypath/device.
#pragma once

#include <type_traits>

#include "polypath/device/group.cuh"
#include "polypath/uniconn/enums.hpp"

namespace polypath::uniconn::detail {

template <ThreadGroup G>
using GroupOf =
    std::conditional_t<G == ThreadGroup::THREAD, device::Thread,
                       std::conditional_t<G == ThreadGroup::WARP, device::Warp, device::Block>>;

}  // namespace polypath::uniconn::detail
