// What the options of channel.h come to, checked: the shapes of a channel and of active messages.
#pragma once

#include "polypath/device/active_messages_view.hpp"
#include "polypath/device/channel_view.hpp"
#include "polypath/messaging/channel.h"

namespace polypath {

/// A view without addresses. Throws InvalidArgument, with the name of the option.
device::channel_view layout_of(const polypath_channel_options& options, int rank, int ranks,
                               int windows);
device::active_messages_view layout_of(const polypath_active_messages_options& options, int rank,
                                       int ranks);

}  // namespace polypath
