#include "collectives/result_windows.hpp"

#include <bit>

#include "collectives/kernels/rank_roles.h"
#include "collectives/kernels/relay_layout.h"
#include "collectives/kernels/tiles.h"
#include "driver/pointer_attributes.hpp"

namespace polypath {
namespace {

/// Whether another rank is of this process.
bool has_peers_here(const Communicator& comm) {
  for (int rank = 0; rank < comm.size(); ++rank)
    if (rank != comm.rank() && comm.is_here(rank)) return true;
  return false;
}

/// Whether peer access of the rank's context is access to these bytes, at the same address. Mapped
/// memory and memory of pools have access of their own, for each GPU.
bool is_plain_memory(const Communicator& comm, CUdeviceptr address, std::uint64_t bytes) {
  PointerAttributes memory;
  memory.ask(comm.driver(), address);
  const std::uint64_t offset = address - memory.start;
  return memory.type == CU_MEMORYTYPE_DEVICE && memory.managed == 0 && memory.plain() &&
         memory.context == comm.context() && memory.ordinal == comm.gpu() &&
         address >= memory.start && offset <= memory.bytes && bytes <= memory.bytes - offset;
}

void find_windows(UnevenArgs& args, const Communicator& comm, std::uint64_t bytes) {
  const auto out = std::bit_cast<CUdeviceptr>(args.out);
  const auto set = [&](int rank, CUdeviceptr address) {
    if (rank != comm.rank()) args.windows[rank] = std::bit_cast<unsigned char*>(address);
  };
  if (const auto addresses = comm.peer_addresses(out, bytes)) {
    for (int rank = 0; rank < comm.size(); ++rank)
      set(rank, (*addresses)[static_cast<std::size_t>(rank)]);
    return;
  }
  if (!has_peers_here(comm) || !is_plain_memory(comm, out, bytes)) return;
  for (int rank = 0; rank < comm.size(); ++rank)
    if (comm.is_here(rank)) set(rank, out);
}

}  // namespace

bool has_direct_results(DirectResultsSetting setting, const Communicator& comm, bool stands_in) {
  if (setting != DirectResultsSetting::automatic) return setting == DirectResultsSetting::on;
  return !stands_in && has_peers_here(comm);
}

bool set_result_windows(UnevenArgs& args, const Communicator& comm, std::uint64_t bytes) {
  if (!comm.has_peer_access() || bytes == 0 || !may_go_straight(args)) return false;
  const UnevenPart part = part_of(args);
  if (part.roles.take == 0) return false;
  find_windows(args, comm, bytes);
  // Channel 0 has as many tiles as any.
  const Cut cut = cut_of(part.pieces.longest, args.channels, 0, args.tile_bytes, ways_of(args),
                         part.roles.hops());
  for (std::uint32_t peer = 0; peer < args.shape.ranks; ++peer) {
    if ((part.roles.take >> peer & 1U) == 0 || args.windows[peer] == nullptr) continue;
    const auto place = std::bit_cast<std::uintptr_t>(args.windows[peer]) + part.pieces.out(peer);
    const std::uint32_t first = first_direct_tile(args, part.roles);
    if (place % kWindowAlignment == 0 && tile_of(cut, first, part.pieces.length(peer)).bytes != 0)
      return true;
  }
  return false;
}

}  // namespace polypath
