// Collectives by cells: the lowest latency, for small buffers.
//
// A cell is a packet of 16 bytes that are stored and loaded at once (polypath/device/scope.cuh): 12
// bytes of data and a flag of 4. So no fence and no second message is needed to say that the data
// are there: the cell that holds the flag of this call holds its data. A thread moves pairs of
// cells: 3 words of 8 bytes in 32 bytes.
//
// A rank has a region of cells for each sender, in its own scratch; only the sender writes it, only
// the owner of the scratch reads it. There are two rings of them, one for each hop (rank_roles.h),
// and two halves of both: call n uses half n % 2, and its flag is n modulo 2^31, and a bit that is
//   never 0. A thread pushes its words of `in` to the peers, then combines what the peers pushed
//   for its words and stores or pushes the result, then copies what is left to `out`. Each of these
//   waits only until the very cells that it reads carry the flag.
//
// Reuse. Nothing says that a cell was read. It may be overwritten two calls later: a rank begins
// call n + 2 once it ended call n + 1, which it ended only after every rank began call n + 1
// (call_meeting.cuh), and so ended call n with all its reading.
//
// The number of the call is counted on the device, so a captured graph replays: each block adds its
// share of kCallParts once its threads have read the count, and the shares of a grid make
// kCallParts; so all blocks read a count of the same call. Blocks do that while data are under way.
// At the end of a small call it would take as long as the last store. A call that times out is
// counted as well: what this rank calls next must not be taken for it by a rank that comes late.
//
// Flags come round after 2^31 calls. A cell that was last written exactly 2^31 calls ago, by a
// larger call, would be taken for one of this call. So a warp clears one row of cells in two of
// 2^kClearShift calls, one of each half: all rows in turn, each many times in 2^31 calls. It clears
// what its rank does not write in this call, which no rank reads in this call.
//
// No deadlock: no thread waits before it has pushed all its words of `in`; a result waits for these
// pushes alone, and copying for results. All blocks of a call must run at once. Each rank may have
// another number of blocks: cells say where their data belong, not which block stored them.
//
// In place: a word of `out` is written by the thread that pushed the words of `in` at its place,
// after it did. Results depend on neither the number of blocks nor time, as with channels.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "collectives/kernels/call_meeting.cuh"
#include "collectives/kernels/cell_calls.cuh"
#include "collectives/kernels/collective_args.h"
#include "collectives/kernels/mutants.h"
#include "collectives/kernels/partial_words.cuh"
#include "collectives/kernels/rank_roles.h"
#include "collectives/kernels/reductions.cuh"
#include "polypath/device/tile.cuh"
#include "polypath/device/wait.cuh"
#include "simt/platform.cuh"

namespace polypath::cells {

inline constexpr std::uint32_t kWord = 8;
inline constexpr int kWords = 3;  ///< of a pair
static_assert(kCellRowData == simt::kWarp * kWords * kWord);

/// In every flag: a cell that was never written has none.
inline constexpr std::uint32_t kUsed = 1U << 31;

/// Two calls of 2^kClearShift clear a row of cells.
inline constexpr std::uint32_t kClearShift = 16;
static_assert(kMaxCellRegion / kCellRowBytes <= 1U << (31 - kClearShift));

/// Its `lap` is the flag.
using Cell = device::ll_packet;

/// A thread's part of a row.
struct Words {
  std::uint64_t at[kWords];
};
struct Pair {
  Cell first;
  Cell second;
};
// Arrays of words and pairs whose loads have conditions are initialised: what has no value before
// is in registers from the kernel's begin on (docs/cuda-notes.md).

SIMT_DEVICE Pair pair_of(const Words& words, std::uint32_t flag) {
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const auto high = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); };
  return {{{low(words.at[0]), high(words.at[0]), low(words.at[1])}, flag},
          {{high(words.at[1]), low(words.at[2]), high(words.at[2])}, flag}};
}

SIMT_DEVICE Words words_of(const Pair& pair) {
  const auto word = [](std::uint32_t low, std::uint32_t high) {
    return low | std::uint64_t{high} << 32;
  };
  return {{word(pair.first.data[0], pair.first.data[1]),
           word(pair.first.data[2], pair.second.data[0]),
           word(pair.second.data[1], pair.second.data[2])}};
}

/// Where this lane's k-th word of a row lies in a piece. A row is the pairs of a warp; its words,
/// as its cells, lie k-th by k-th, so that a warp loads and stores neighbours. Pieces are shorter
/// than a region (kMaxCellRegion).
SIMT_DEVICE std::uint32_t place_of(std::uint32_t row, int k) {
  return row * kCellRowData + static_cast<std::uint32_t>(k) * (simt::kWarp * kWord) +
         simt::lane_index() * kWord;
}

/// True when the lane has words of that row in a piece of `length` bytes.
SIMT_DEVICE bool has_words(std::uint32_t row, std::uint64_t length) {
  return place_of(row, 0) < length;
}
/// True when any lane has.
SIMT_DEVICE bool is_row(std::uint32_t row, std::uint64_t length) {
  return row * kCellRowData < length;
}

/// A piece of user memory, of any alignment.
class Piece {
 public:
  SIMT_DEVICE Piece(const void* begin, std::uint64_t offset, std::uint64_t length)
      : begin_(static_cast<const unsigned char*>(begin) + offset),
        length_(static_cast<std::uint32_t>(length)),
        aligned_(reinterpret_cast<std::uintptr_t>(begin_) % kWord == 0) {}

  [[nodiscard]] SIMT_DEVICE bool is_at(const Piece& other) const { return begin_ == other.begin_; }
  [[nodiscard]] SIMT_DEVICE bool has_words(std::uint32_t row) const {
    return cells::has_words(row, length_);
  }

  /// Bytes after the end read as 0. A row of whole words takes no conditions: in a small call each
  /// instruction counts.
  [[nodiscard]] SIMT_DEVICE Words load(std::uint32_t row) const {
    Words words{};
    const auto* const from = reinterpret_cast<const std::uint64_t*>(begin_ + place_of(row, 0));
    if (is_whole(row)) {
      POLYPATH_UNROLL
      for (int k = 0; k < kWords; ++k) words.at[k] = simt::load_streaming(from + k * kStride);
    } else {
      POLYPATH_UNROLL
      for (int k = 0; k < kWords; ++k)
        words.at[k] = has_word(row, k) ? simt::load_streaming(from + k * kStride)
                                       : load_partial_word(begin_, place_of(row, k), length_);
    }
    return words;
  }
  SIMT_DEVICE void store(std::uint32_t row, const Words& words) const {
    auto* const begin = const_cast<unsigned char*>(begin_);
    auto* const to = reinterpret_cast<std::uint64_t*>(begin + place_of(row, 0));
    if (is_whole(row)) {
      POLYPATH_UNROLL
      for (int k = 0; k < kWords; ++k) simt::store_streaming(to + k * kStride, words.at[k]);
    } else {
      POLYPATH_UNROLL
      for (int k = 0; k < kWords; ++k)
        if (has_word(row, k))
          simt::store_streaming(to + k * kStride, words.at[k]);
        else
          store_partial_word(begin, place_of(row, k), length_, words.at[k]);
    }
  }

 private:
  static constexpr int kStride = static_cast<int>(simt::kWarp);

  /// The same for all lanes.
  [[nodiscard]] SIMT_DEVICE bool is_whole(std::uint32_t row) const {
    return aligned_ && (row + 1) * kCellRowData <= length_;
  }
  [[nodiscard]] SIMT_DEVICE bool has_word(std::uint32_t row, int k) const {
    return aligned_ && place_of(row, k) + kWord <= length_;
  }

  const unsigned char* begin_;
  std::uint32_t length_;
  bool aligned_;
};

/// Whether call `number`, modulo 2^31, clears a row.
SIMT_DEVICE bool clears(std::uint32_t number) {
  return (number & ((1U << kClearShift) - 2)) == 0 && !has_mutant(Fault::cells_not_cleared);
}

/// One warp, rarely: clears what this rank does not write of a row, as Call pushes, in the regions
/// of all ranks; in its own, what calls by all_reduce_norm.cuh left.
template <typename Args>
SIMT_DEVICE_NOINLINE void clear_row(const Args& args, std::uint32_t half, std::uint32_t number) {
  const PartOf<Args> part = part_in_call(args);
  const RankRoles& roles = part.roles;
  const ScratchLayout layout{args.shape};
  const std::uint32_t row = (number >> kClearShift) % (args.shape.cell_bytes / kCellRowBytes);
  const auto is_in = [](std::uint32_t set, std::uint32_t rank) {
    return ((set >> rank) & 1U) != 0;
  };
  for (std::uint32_t to = 0; to < args.shape.ranks; ++to)
    for (std::uint32_t ring = 0; ring < 2; ++ring) {
      const std::uint64_t length = part.pieces.in_stride == 0 ? part.pieces.pushed_length(args.rank)
                                                              : part.pieces.length(to);
      if (ring == roles.ring && is_in(roles.push, to) && has_words(row, length)) continue;
      if (ring == 1 && roles.owner && is_in(roles.results, to) &&
          has_words(row, part.pieces.length(args.rank)))
        continue;
      Cell* const at =
          reinterpret_cast<Cell*>(args.scratch[to] + layout.cells(half, ring, args.rank) +
                                  row * kCellRowBytes) +
          simt::lane_index();
      device::store_relaxed<device::system_scope>(at, Cell{});
      device::store_relaxed<device::system_scope>(at + simt::kWarp, Cell{});
    }
}

/// One call, as one thread sees it, of at most `kMaxPeers` ranks: fewer need fewer registers, and
/// fewer instructions between the last data and the stores of results.
template <typename Element, int kMaxPeers, SumOrder kOrder, typename Args>
class Call {
 public:
  /// Takes no memory.
  SIMT_DEVICE Call(const Args& args, const PartOf<Args>& part)
      : args_(args),
        part_(part),
        layout_{args.shape},
        first_row_(simt::warp_index() * simt::grid_size() + simt::block_index()),
        owner_(simt::opaque((part.roles.owner ? kOwns : 0U) |
                            (part.roles.own_part ? kHasPart : 0U) |
                            (part.roles.owner_keeps ? kKeeps : 0U))) {}

  SIMT_DEVICE void run() {
    if (has_mutant(Fault::call_counted_too_early)) count_share(args_);
    // The last warp has no rows in a small call, and no more than others in any.
    const bool meets =
        simt::block_index() == 0 && simt::warp_index() + 1 == simt::block_size() / simt::kWarp;
    const std::uint32_t meeting = meets ? begin_meeting(args_) : 0;
    // Only warps with rows load the count: all of them at one address would wait for each other.
    const bool has_rows = is_row(first_row_, part_.pieces.longest);
    if (has_rows) push(simt::load_relaxed(calls_of(args_)));
    simt::block_sync();  // all that need the count have read it
    if (!has_mutant(Fault::call_counted_too_early)) count_share(args_, simt::block_size() - 1);
    if (meets && !simt::warp_all(end_meeting(args_, meeting))) return;
    if (has_rows && combine()) take();
  }

 private:
  SIMT_DEVICE Piece in(std::uint32_t rank) const {
    return {args_.in, part_.pieces.in(rank), part_.pieces.length(rank)};
  }
  SIMT_DEVICE Piece out(std::uint32_t rank) const {
    return {args_.out, part_.pieces.out(rank), part_.pieces.length(rank)};
  }
  /// What this rank pushes to all others alike.
  SIMT_DEVICE Piece pushed() const {
    return {args_.in, part_.pieces.in(0), part_.pieces.pushed_length(args_.rank)};
  }
  /// This lane's first cell of a row; the second lies kWarp cells after it.
  SIMT_DEVICE Cell* cells(std::uint32_t receiver, std::uint32_t ring, std::uint32_t sender,
                          std::uint32_t row) const {
    return reinterpret_cast<Cell*>(args_.scratch[receiver] +
                                   layout_.cells(simt::opaque(half_), ring, sender) +
                                   std::uint64_t{row} * kCellRowBytes) +
           simt::lane_index();
  }
  /// Rank `p`, for a place or a length that is worked out where it is used: those of all peers at
  /// once would take as many registers as their pairs.
  SIMT_DEVICE static std::uint32_t rank_of(int p) {
    return simt::opaque(static_cast<std::uint32_t>(p));
  }
  /// What it does as an owner (RankRoles), in one register.
  enum Owner : std::uint32_t { kOwns = 1, kHasPart = 2, kKeeps = 4 };
  SIMT_DEVICE bool does(Owner what) const { return (owner_ & what) != 0; }
  SIMT_DEVICE static std::uint32_t row_step() {
    return simt::grid_size() * (simt::block_size() / simt::kWarp);
  }
  SIMT_DEVICE bool in_set(std::uint32_t set, int rank) const { return ((set >> rank) & 1U) != 0; }

  SIMT_DEVICE void push_pair(int to, std::uint32_t ring, std::uint32_t row, const Pair& pair) {
    Cell* const at = cells(static_cast<std::uint32_t>(to), ring, args_.rank, row);
    device::store_relaxed<device::system_scope>(at, pair.first);
    device::store_relaxed<device::system_scope>(at + simt::kWarp, pair.second);
  }

  SIMT_DEVICE void begin(std::uint64_t count) {
    const std::uint64_t number = simt::opaque(count) / kCallParts;
    flag_ = kUsed | (has_mutant(Fault::flag_not_counted) ? 0 : static_cast<std::uint32_t>(number));
    half_ = has_mutant(Fault::halves_not_alternated) ? 0 : static_cast<std::uint32_t>(number % 2);
  }

  /// `count`: as it was loaded. It is looked at after the first row's loads are under way.
  SIMT_DEVICE void push(std::uint64_t count) {
    const std::uint64_t length =
        part_.pieces.in_stride == 0 ? part_.pieces.pushed_length(args_.rank) : part_.pieces.longest;
    const bool pushes = part_.roles.push != 0 && is_row(first_row_, length);
    Words words[kMaxPeers] = {};
    if (pushes) load_row(first_row_, words);
    begin(count);
    for (std::uint32_t row = first_row_; pushes;) {
      push_row(row, words);
      row += row_step();
      if (!is_row(row, length)) break;
      load_row(row, words);
    }
    const std::uint32_t number = flag_ & ~kUsed;
    if (first_row_ == 0 && clears(number)) clear_row(args_, half_, number);
  }
  /// What it pushes of a row: one part for all, or one for each.
  SIMT_DEVICE void load_row(std::uint32_t row, Words (&words)[kMaxPeers]) const {
    if (part_.pieces.in_stride == 0) {
      words[0] = pushed().load(row);
      return;
    }
    POLYPATH_UNROLL
    for (int p = 0; p < kMaxPeers; ++p)
      if (in_set(part_.roles.push, p)) words[p] = in(rank_of(p)).load(row);
  }
  SIMT_DEVICE void push_row(std::uint32_t row, const Words (&words)[kMaxPeers]) {
    const RankRoles& roles = part_.roles;
    if (part_.pieces.in_stride == 0) {
      if (!pushed().has_words(row)) return;
      const Pair pair = pair_of(words[0], flag_);
      POLYPATH_UNROLL
      for (int p = 0; p < kMaxPeers; ++p)
        if (in_set(roles.push, p)) push_pair(p, roles.ring, row, pair);
      return;
    }
    POLYPATH_UNROLL
    for (int p = 0; p < kMaxPeers; ++p)
      if (in_set(roles.push, p) && has_words(row, part_.pieces.length(rank_of(p))))
        push_pair(p, roles.ring, row, pair_of(words[p], flag_));
  }

  /// Waits for this lane's pairs of a row from all of `senders`. All lanes of a warp; false, to
  /// all: one has timed out.
  SIMT_DEVICE bool wait_for_pairs(std::uint32_t senders, std::uint32_t ring, std::uint32_t row,
                                  Pair (&pairs)[kMaxPeers]) {
    int missing = 0;
    const auto* const first =
        reinterpret_cast<const unsigned char*>(cells(args_.rank, ring, 0, row));
    const auto ready = [&] {
      bool all = true;
      POLYPATH_UNROLL
      for (int p = 0; p < kMaxPeers; ++p) {
        const auto* const at = reinterpret_cast<const Cell*>(first + std::uint64_t{rank_of(p)} *
                                                                         args_.shape.cell_bytes);
        if (in_set(senders, p)) {
          pairs[p].first = device::load_relaxed<device::system_scope>(at);
          pairs[p].second = device::load_relaxed<device::system_scope>(at + simt::kWarp);
        }
      }
      POLYPATH_UNROLL
      for (int p = 0; p < kMaxPeers; ++p)
        if (in_set(senders, p)) {
          const bool whole =
              has_mutant(Fault::half_a_pair_looked_at) || pairs[p].second.lap == flag_;
          if (pairs[p].first.lap != flag_ || !whole) {
            all = false;
            missing = p;
          }
        }
      return all;
    };
    const bool has_come = device::wait_until(args_.wait_ctx, ready, [&] {
      return device::wait_target{static_cast<std::uint32_t>(missing), flag_,
                                 pairs_flag(pairs, missing)};
    });
    // Lanes whose data come first would use them before the others look again.
    return simt::warp_all(has_come);
  }

  SIMT_DEVICE static std::uint32_t pairs_flag(const Pair (&pairs)[kMaxPeers], int peer) {
    std::uint32_t flag = 0;
    POLYPATH_UNROLL
    for (int p = 0; p < kMaxPeers; ++p)
      if (p == peer) flag = pairs[p].first.lap;
    return flag;
  }

  SIMT_DEVICE bool combine() {
    const RankRoles& roles = part_.roles;
    if (!does(kOwns)) return true;
    const std::uint64_t length = part_.pieces.length(args_.rank);
    for (std::uint32_t row = first_row_; is_row(row, length); row += row_step()) {
      Words own{};
      if (does(kHasPart)) own = in(args_.rank).load(row);
      Pair pairs[kMaxPeers] = {};
      const bool has = has_words(row, length);
      if (!wait_for_pairs(has ? roles.combine : 0, 0, row, pairs)) return false;
      Words result;
      if constexpr (std::is_same_v<Element, Bytes>) {
        result = own;
        POLYPATH_UNROLL
        for (int p = 0; p < kMaxPeers; ++p)
          if (in_set(roles.combine, p)) result = words_of(pairs[p]);
      } else {
        with_combining(args_.reduction, [&](auto combining) {
          result =
              combined(ReductionOf<Element, decltype(combining)::value, kOrder>(args_), own, pairs);
        });
      }
      const Pair pair = pair_of(result, flag_);
      const std::uint32_t at = simt::opaque(row);
      POLYPATH_UNROLL
      for (int p = 0; p < kMaxPeers; ++p)
        if (has && in_set(roles.results, p)) push_pair(p, 1, at, pair);
      if (does(kKeeps)) out(simt::opaque(std::uint32_t{args_.rank})).store(at, result);
    }
    return true;
  }

  /// One word after another: the sums of all would take three times as many registers.
  template <typename Operation>
  SIMT_DEVICE Words combined(const Operation& operation, const Words& own,
                             const Pair (&pairs)[kMaxPeers]) const {
    Words result;
    POLYPATH_UNROLL
    for (int k = 0; k < kWords; ++k) {
      result.at[k] = combined_word(operation, [&](int p) {
        if (has_mutant(Fault::own_part_first)) {
          const int rank = args_.rank;
          return (p == 0 ? own : words_of(pairs[p <= rank ? p - 1 : p])).at[k];
        }
        return (p == args_.rank ? own : words_of(pairs[p])).at[k];
      });
    }
    return result;
  }

  /// The words `word_of(rank)` of all ranks: each of them has a part.
  template <typename Operation, typename WordOf>
  SIMT_DEVICE std::uint64_t combined_word(const Operation& operation, const WordOf& word_of) const {
    constexpr int kElements = static_cast<int>(kWord / sizeof(Element));
    using Sum = typename Operation::Sum;
    const int ranks = kMaxPeers == 2 ? 2 : static_cast<int>(args_.shape.ranks);
    Sum sums[kElements];
    const auto load = [&](int p, Sum(&into)[kElements]) {
      Element elements[kElements];
      const std::uint64_t word = word_of(p);
      memcpy(elements, &word, kWord);
      POLYPATH_UNROLL
      for (int e = 0; e < kElements; ++e) into[e] = operation.widen(elements[e]);
    };
    if (kOrder == SumOrder::tree && !has_mutant(Fault::ranks_in_turn)) {
      device::detail::combine_as_tree<0, kMaxPeers>(
          operation, ranks, sums, [&](auto p, auto& into) { load(decltype(p)::value, into); });
    } else {
      load(0, sums);
      POLYPATH_UNROLL
      for (int p = 1; p < kMaxPeers; ++p) {
        if (p >= ranks) continue;
        Sum next[kElements];
        load(p, next);
        POLYPATH_UNROLL
        for (int e = 0; e < kElements; ++e) sums[e] = operation.combine(sums[e], next[e]);
      }
    }
    Element elements[kElements];
    POLYPATH_UNROLL
    for (int e = 0; e < kElements; ++e) elements[e] = operation.narrow(sums[e]);
    std::uint64_t result;
    memcpy(&result, elements, kWord);
    return result;
  }

  SIMT_DEVICE void take() {
    const RankRoles& roles = part_.roles;
    if ((roles.take | roles.keep) == 0) return;
    for (std::uint32_t row = first_row_; is_row(row, part_.pieces.longest); row += row_step()) {
      std::uint32_t senders = 0;
      POLYPATH_UNROLL
      for (int p = 0; p < kMaxPeers; ++p) {
        const std::uint32_t rank = rank_of(p);
        if (!in(rank).has_words(row)) continue;
        if (in_set(roles.keep, p) && !in(rank).is_at(out(rank)))
          out(rank).store(row, in(rank).load(row));
        senders |= roles.take & (1U << p);
      }
      Pair pairs[kMaxPeers] = {};
      if (!wait_for_pairs(senders, 1, row, pairs)) return;
      POLYPATH_UNROLL
      for (int p = 0; p < kMaxPeers; ++p) {
        if (in_set(senders, p)) out(rank_of(p)).store(row, words_of(pairs[p]));
      }
    }
  }

  const Args& args_;
  const PartOf<Args>& part_;
  ScratchLayout layout_;
  const std::uint32_t first_row_;
  const std::uint32_t owner_;
  std::uint32_t half_ = 0;
  std::uint32_t flag_ = 0;
};

template <typename Element, int kMaxPeers, SumOrder kOrder, typename Args>
SIMT_DEVICE void run_among(const Args& args) {
  const PartOf<Args> part = part_in_call(args);
  Call<Element, kMaxPeers, kOrder, Args> call(args, part);
  simt::grid_dependency_wait();
  if (part.pieces.longest != 0) call.run();
}

template <typename Element, SumOrder kOrder, typename Args>
SIMT_DEVICE void run(const Args& args) {
  // The instance of two ranks costs the others registers where parts may be uneven.
  constexpr bool kHasPairs = !std::is_same_v<Args, UnevenArgs>;
  if (kHasPairs && args.shape.ranks == 2)
    run_among<Element, kHasPairs ? 2 : static_cast<int>(kMaxRanks / 2), kOrder>(args);
  else if (args.shape.ranks <= kMaxRanks / 2)
    run_among<Element, static_cast<int>(kMaxRanks / 2), kOrder>(args);
  else
    run_among<Element, static_cast<int>(kMaxRanks), kOrder>(args);
}

}  // namespace polypath::cells
