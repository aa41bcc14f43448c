// The C API of collectives from kernels (messaging/device_collectives.h): words in symmetric
// memory.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/comm_handle.hpp"
#include "comm/communicator.hpp"
#include "comm/rank_threads.hpp"
#include "core/c_boundary.hpp"
#include "polypath/device/collectives_view.hpp"
#include "polypath/messaging/device_collectives.h"

struct polypath_device_collectives {
  polypath::Communicator* communicator;
  polypath::SymmetricMemory memory;
};

using namespace polypath;

namespace {

using device::collectives_view;

constexpr std::size_t kMeetingRoom = 256;  // then the grid's words, of the rank's own
static_assert(collectives_view::kMeetingBytes <= kMeetingRoom);

std::unique_ptr<polypath_device_collectives> make_meeting(Communicator& communicator) {
  if (communicator.size() > collectives_view::kMaxRanks)
    throw NotSupported(fmt::format("kernels of {} ranks make no collectives: of {} at the most",
                                   communicator.size(), collectives_view::kMaxRanks));
  return std::make_unique<polypath_device_collectives>(
      &communicator,
      communicator.alloc(kMeetingRoom + collectives_view::kGridBytes, SymmetricUse::peers));
}
void end_meeting(polypath_device_collectives* handle) {
  const std::unique_ptr<polypath_device_collectives> owner(handle);
  owner->communicator->free(std::move(owner->memory));
}

}  // namespace

polypath_status polypath_device_collectives_create(polypath_comm* comm,
                                                   polypath_device_collectives** handle) {
  return guarded([&] {
    require(handle != nullptr, "handle is null");
    *handle = make_meeting(communicator_of(comm)).release();
  });
}

polypath_status polypath_device_collectives_create_all(polypath_comm* const* comms, int ranks,
                                                       polypath_device_collectives** handles) {
  return guarded([&] {
    require_all(comms, ranks);
    require(handles != nullptr, "handles is null");
    std::vector<std::unique_ptr<polypath_device_collectives>> created(
        static_cast<std::size_t>(ranks));
    on_threads(ranks, [&](std::size_t i) { created[i] = make_meeting(communicator_of(comms[i])); });
    for (std::size_t i = 0; i < created.size(); ++i) handles[i] = created[i].release();
  });
}

polypath_status polypath_device_collectives_destroy(polypath_device_collectives* handle) {
  return guarded([&] {
    require(handle != nullptr, "handle is null");
    end_meeting(handle);
  });
}

polypath_status polypath_device_collectives_destroy_all(polypath_device_collectives* const* handles,
                                                        int ranks) {
  return guarded([&] {
    require_handles(handles, ranks, "handles");
    on_threads(ranks, [&](std::size_t i) { end_meeting(handles[i]); });
  });
}

polypath_status polypath_device_collectives_view(const polypath_device_collectives* handle,
                                                 void* view, size_t bytes) {
  return guarded([&] {
    require(handle != nullptr, "handle is null");
    require(view != nullptr, "view is null");
    require(bytes == sizeof(collectives_view),
            "bytes is not the size of polypath::device::collectives_view: the headers are of "
            "another version");
    collectives_view typed_view{};
    typed_view.rank = handle->communicator->rank();
    typed_view.ranks = handle->communicator->size();
    for (int rank = 0; rank < typed_view.ranks; ++rank)
      typed_view.meeting[rank] = reinterpret_cast<std::uint64_t*>(handle->memory.address(rank));
    typed_view.grid = reinterpret_cast<std::uint32_t*>(handle->memory.local() + kMeetingRoom);
    typed_view.wait_ctx = handle->communicator->program_wait_context();
    std::memcpy(view, &typed_view, sizeof typed_view);
  });
}
