// What the collective kernels are told, and how the scratch that they share is laid out: the one
// agreement between host and device. C++17, plain data.
//
// Scratch is symmetric memory: as many bytes on every rank, zeroed once, before the first call, and
// not touched by anything but these kernels from then on. It holds, at offsets that are functions
// of its shape alone:
//   counts   of this rank's own: calls; tiles sent and taken, for each channel. Its kernels add to
//            them by atomic operations; where scratch is host memory, they lie elsewhere
//   flags    written by the peers: marks of calls, filled and credit of each channel's rings
//   windows  written by the peers: where in their `out` this rank may store (result_windows.cuh)
//   cells    two halves, used in turn, each with two sets of one region a sender; lines have the
//            same in memory of their own
//   slots    two rings of them for each channel and sender; no rank sends to itself by them
// All ranks give the same shape, operation, type, operator, count, root, stages, tile_bytes, lag
// and number of channels, which their marks say (call_meeting.cuh). Each rank gives the number of
// blocks that it has: it need not be that of another rank, and no result depends on it. A
// communicator's calls on one scratch run one after another on each GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/channel_ways.h"
#include "collectives/collective_types.h"
#include "collectives/kernels/call_mark.h"
#include "comm/wait_error.hpp"

namespace polypath {

/// Ranks of a communicator that these kernels serve.
inline constexpr std::uint32_t kMaxRanks = 8;
/// Threads of a block, of every kernel here.
inline constexpr std::uint32_t kCollectiveThreads = 512;

/// The size of a scratch. All its parts begin at multiples of 128 bytes.
struct ScratchShape {
  std::uint32_t ranks;       ///< 1 to kMaxRanks
  std::uint32_t channels;    ///< the most of a call by channels
  std::uint32_t slots;       ///< of one ring: a power of 2, 4 or more
  std::uint32_t slot_bytes;  ///< the largest tile; a multiple of 128
  std::uint32_t cell_bytes;  ///< of one sender's region: a multiple of 1024; 3/4 of it are data
  /// The bytes of one sender's region of lines, which lie in memory of their own (LineLayout): a
  /// multiple of 1024; 15/16 of it are data. 0: there is none.
  std::uint32_t line_bytes = 0;
};
/// Limits cell_bytes: larger regions are not cleared before the numbers in flags come round.
inline constexpr std::uint32_t kMaxCellRegion = 32U << 20;

/// What a rank's lanes of a channel count: 4 kinds of 8 peers, a 64-bit word each.
inline constexpr std::uint32_t kChannelWords = 4 * kMaxRanks;
/// What a warp moves at once by cells: bytes in scratch, and bytes of data in them
/// (collective_ll.cuh).
inline constexpr std::uint32_t kCellRowBytes = 1024;
inline constexpr std::uint32_t kCellRowData = 768;
/// What a warp moves at once by lines (collective_ll128.cuh).
inline constexpr std::uint32_t kLineRowBytes = 1024;
inline constexpr std::uint32_t kLineRowData = 960;
/// Limits line_bytes: offsets in the buffers of a call by lines have 32 bits.
inline constexpr std::uint32_t kMaxLineRegion = 256U << 20;
/// Scratch, slots and tiles are multiples of it, in place and in size.
inline constexpr std::uint32_t kScratchGranule = 128;
static_assert(kScratchGranule % kChannelGranule == 0);
/// Results go straight into an `out` that is as aligned as a slot: stores of a warp to another GPU
/// take 3 to 8 % longer where they begin elsewhere (docs/cuda-notes.md).
inline constexpr std::uint32_t kWindowAlignment = kScratchGranule;

/// Where a scratch of a shape holds what: offsets and sizes in bytes.
struct ScratchLayout {
  ScratchShape shape;

  /// Calls of cells so far, times kCallParts; a 64-bit word.
  static constexpr std::uint64_t calls() { return 0; }
  /// Calls of all families so far; a 64-bit word.
  static constexpr std::uint64_t meetings() { return 8; }
  /// Calls of lines so far, times kCallParts; a 64-bit word.
  static constexpr std::uint64_t line_calls() { return 16; }
  /// Marks of the peers' calls; `half`: 0 or 1; a packet of 16 bytes a peer.
  static constexpr std::uint64_t marks(std::uint32_t half) { return 128 + half * 128; }
  /// Tiles that this rank sent or took, kChannelWords words a channel.
  constexpr std::uint64_t counts(std::uint32_t channel) const {
    return marks(2) + std::uint64_t{channel} * kChannelWords * 8;
  }
  /// The size of what is before: of memory for this rank's own counts alone.
  constexpr std::uint64_t counts_bytes() const { return flags(0); }
  /// Tiles that the peers filled or took, kChannelWords words a channel.
  constexpr std::uint64_t flags(std::uint32_t channel) const {
    return counts(shape.channels + channel);
  }
  /// Where the peers let this rank store tiles of ring 1, a packet of 16 bytes a peer.
  constexpr std::uint64_t windows(std::uint32_t channel) const {
    return flags(shape.channels) + std::uint64_t{channel} * kMaxRanks * 16;
  }
  /// The region of `sender`'s cells; `half`, `ring`: 0 or 1.
  constexpr std::uint64_t cells(std::uint32_t half, std::uint32_t ring,
                                std::uint32_t sender) const {
    return windows(shape.channels) +
           std::uint64_t{(half * 2 + ring) * shape.ranks + sender} * shape.cell_bytes;
  }
  /// In the scratch of `owner`, which is not the sender.
  constexpr std::uint64_t slot(std::uint32_t ring, std::uint32_t owner, std::uint32_t sender,
                               std::uint32_t channel, std::uint32_t slot) const {
    const std::uint32_t place = sender < owner ? sender : sender - 1;
    const std::uint64_t rings =
        (std::uint64_t{ring} * (shape.ranks - 1) + place) * shape.channels + channel;
    return cells(2, 0, 0) + (rings * shape.slots + slot) * shape.slot_bytes;
  }
  /// The size of the whole scratch.
  constexpr std::uint64_t bytes() const {
    const std::uint64_t rings = std::uint64_t{2} * (shape.ranks - 1) * shape.channels;
    return cells(2, 0, 0) + rings * shape.slots * shape.slot_bytes;
  }
};

/// Where the memory of lines of a shape holds what, in bytes: two halves, used in turn, each with
/// two sets of one region a sender. It is zeroed once, as scratch is. No rank sends to itself.
struct LineLayout {
  ScratchShape shape;

  /// In the memory of `owner`, which is not the sender; `half`, `ring`: 0 or 1.
  constexpr std::uint64_t region(std::uint32_t half, std::uint32_t ring, std::uint32_t owner,
                                 std::uint32_t sender) const {
    const std::uint32_t place = sender < owner ? sender : sender - 1;
    return std::uint64_t{(half * 2 + ring) * (shape.ranks - 1) + place} * shape.line_bytes;
  }
  /// The size of all of it.
  constexpr std::uint64_t bytes() const {
    return std::uint64_t{4} * (shape.ranks - 1) * shape.line_bytes;
  }
};

/// The parts in which a call of cells, or of lines, is counted, shared among its blocks; no grid is
/// larger.
inline constexpr std::uint32_t kCallParts = 1U << 16;

/// One call, on one rank: the one parameter of every kernel.
///
/// `count`, in elements, as MPI has it: of the whole for allreduce, broadcast and reduce; of one
/// rank's part for reduce_scatter (what it receives), all_gather (what it sends) and all_to_all
/// (what goes from one rank to another). `in` and `out` are memory of this GPU, aligned to their
/// elements, and either do not overlap, or are in place: in == out; for reduce_scatter `out`, for
/// all_gather `in` may also be this rank's part of the other. `in` of a broadcast counts on the
/// root alone, `out` of a reduce too. A call by channels without elements only compares the
/// marks of all ranks.
struct CollectiveArgs {
  CollectiveOp op;
  DataType type;
  Operator reduction;  ///< of the operations that combine
  std::uint8_t rank;
  std::uint8_t root;
  std::uint8_t stages;  ///< 1: each rank gets all parts from where they are; 2: by an owner a piece
  std::uint8_t lag;     ///< channels: steps between a tile's sending and taking, 2 to slots - 2
  std::uint32_t tile_bytes;  ///< channels: at most slot_bytes; a multiple of 128
  /// Channels: how many, up to shape.channels; the blocks of each rank take them in turns.
  std::uint32_t channels;
  std::uint64_t count;
  const void* in;
  void* out;
  unsigned char* scratch[kMaxRanks];  ///< of every rank, as this GPU addresses it
  unsigned char* counts;              ///< where this rank's own counts are, at their offsets in
                                      ///< scratch: its scratch, or memory of this GPU
  unsigned char* lines[kMaxRanks];    ///< the same of the memory of lines, where there is any
  /// Channels: `out` as each peer's GPU addresses it; null: that peer does not store into it.
  unsigned char* windows[kMaxRanks];
  /// Whether any rank announces places for results (result_windows.cuh), or none does and no sender
  /// asks; the same on all ranks.
  std::uint32_t has_windows;
  /// Channels: over how many relays, the same on all ranks; all of the communicator's, or none.
  std::uint32_t relay_count;
  std::uint32_t relay_slot_bytes;     ///< of a slot there, at least tile_bytes; a multiple of 128
  unsigned char* relays[kMaxRelays];  ///< their memory, as this GPU addresses it
  /// Channels: where they note how long they take, for watching the load of relays; two words a
  /// channel: when its first tile was there, and when it had ended, in ns of this GPU's clock.
  /// Null: nowhere.
  std::uint32_t* channel_ns;
  CallMark mark;        ///< of the whole call, of which this kernel may do a part
  std::uint32_t calls;  ///< what the host calls the communicator's calls (WaitRegistry)
  ScratchShape shape;
  wait_context wait_ctx;
};

/// A call whose ranks have parts of different lengths: the one parameter of kernels of uneven
/// calls. `count` is that of the longest part.
struct UnevenArgs : CollectiveArgs {
  bool is_uneven;  ///< false: as CollectiveArgs says
  /// Where each rank's part begins in the buffer of all parts, in bytes, and where the last one
  /// ends: for reduce_scatter and all_gather.
  std::uint64_t begins[kMaxRanks + 1];
};

}  // namespace polypath
