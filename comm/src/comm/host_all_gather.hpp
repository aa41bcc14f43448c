// What a communicator is bootstrapped by: an all-gather of bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace polypath {

/// Called by all ranks in the same order, with the same number of bytes: `mine` of every rank, in
/// rank order, into `all` (the number of ranks times mine.size() bytes). Throws when it cannot,
/// for example because a rank does not come: only the exchange can know that before there is a
/// communicator. Not called any more once the communicator is created.
using HostAllGather =
    std::function<void(std::span<const std::byte> local, std::span<std::byte> all)>;

}  // namespace polypath
