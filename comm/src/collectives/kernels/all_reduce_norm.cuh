// Allreduce, residual addition and RMSNorm of rows in one kernel: for few rows, by cells in one
// stage (collective_ll.cuh), with the order of rms_norm.cuh.
//
// Each rank pushes its rows to all ranks, itself too. All blocks share in that. Then a block takes
// whole rows: it waits for the cells of all ranks, adds them in rank order as an allreduce does,
// and normalises. There is no second hop, and no rank waits for the norm of another one.
//
// A row may be shared by a team of blocks, each with some of its units. They exchange the sums of
// their units by words of 8 bytes in their own GPU's memory: a sum, and the flag of the call as in
// cells. So the order of sums stays what it is. A word, not a cell, whose other data were not used:
// ptxas would load the sum first, and then the flag (scope.cuh).
//
// A unit of a row (norm_args.h) is a row of cells, so rows begin at whole rows of cells. Regions,
// halves, flags and the count of calls are those of cells: both kinds of calls may follow each
// other in any order.
//
// In place: the input is read by the threads that push it, of any block. Its cells hold its data,
// so output is stored over an input that was read on all its places.
#pragma once

#include <cstdint>

#include "collectives/kernels/rms_norm.cuh"

namespace polypath::all_reduce_norm {

using cells::Cell;
using cells::Pair;
using cells::Words;

/// Blocks of one GPU that share rows. `sums`: a word for each unit of the call.
class SharedRows {
 public:
  SIMT_DEVICE SharedRows(const NormArgs& args, std::uint64_t* sums, std::uint32_t flag)
      : args_(args), sums_(sums), flag_(flag) {}

  SIMT_DEVICE std::uint32_t size() const { return args_.team; }
  SIMT_DEVICE std::uint32_t member() const { return simt::block_index() % args_.team; }
  SIMT_DEVICE std::uint32_t number() const { return simt::block_index() / args_.team; }
  SIMT_DEVICE std::uint32_t count() const { return simt::grid_size() / args_.team; }

  SIMT_DEVICE void put(float* sums, std::uint32_t row, std::uint32_t unit, float sum) const {
    if (args_.team == 1) {
      sums[unit] = sum;
      return;
    }
    const std::uint32_t at = row * norm_units(args_.hidden) + unit;
    device::store_relaxed<device::device_scope>(
        sums_ + at, std::uint64_t{flag_} << 32 | simt::detail::bits_of(sum));
  }

  SIMT_DEVICE bool gather(float* sums, std::uint32_t row, std::uint32_t units, bool ok) const {
    if (args_.team > 1 && simt::warp_index() == 0)
      for (std::uint32_t unit = simt::lane_index(); ok && unit < units; unit += simt::kWarp)
        ok = take(sums, row * units + unit, unit);
    return norm::Alone{}.gather(sums, row, units, ok);
  }

 private:
  SIMT_DEVICE bool take(float* sums, std::uint32_t at, std::uint32_t unit) const {
    std::uint64_t word = 0;
    const auto flag = [&] { return static_cast<std::uint32_t>(word >> 32); };
    const auto ready = [&] {
      word = load(sums_ + at);
      return flag() == flag_ || has_mutant(Fault::squares_not_waited_for);
    };
    const bool ok = device::wait_until(args_.call.wait_ctx, ready, [&] {
      return device::wait_target{args_.call.rank, flag_, flag()};
    });
    sums[unit] = simt::detail::float_of(static_cast<std::uint32_t>(word));
    return ok;
  }

  SIMT_DEVICE static std::uint64_t load(const std::uint64_t* from) {
    if (!has_mutant(Fault::sum_loaded_before_its_flag))
      return device::load_relaxed<device::device_scope>(from);
    const auto* const half = reinterpret_cast<const std::uint32_t*>(from);
    const std::uint32_t sum = device::load_relaxed<device::device_scope>(half);
    return std::uint64_t{device::load_relaxed<device::device_scope>(half + 1)} << 32 | sum;
  }

  const NormArgs& args_;
  std::uint64_t* sums_;
  std::uint32_t flag_;
};

/// One call, as one thread sees it, of at most `kMaxPeers` ranks.
template <typename Element, int kMaxPeers>
class Call {
 public:
  SIMT_DEVICE explicit Call(const NormArgs& args)
      : args_(args),
        call_(args.call),
        bytes_(std::uint64_t{args.hidden} * sizeof(Element)),
        units_(norm_units(args.hidden)) {
    const std::uint64_t number = simt::load_relaxed(cells::calls_of(call_)) / kCallParts;
    number_ = has_mutant(Fault::flag_not_counted)
                  ? 0
                  : static_cast<std::uint32_t>(number) & ~cells::kUsed;
    half_ = has_mutant(Fault::halves_not_alternated) ? 0 : static_cast<std::uint32_t>(number % 2);
    const ScratchLayout layout{call_.shape};
    pushed_ = layout.cells(half_, 0, call_.rank) + simt::lane_index() * sizeof(Cell);
    received_ =
        call_.scratch[call_.rank] + layout.cells(half_, 0, 0) + simt::lane_index() * sizeof(Cell);
  }

  SIMT_DEVICE void run(norm::RowSums& sums) {
    // A block that only pushes, if there is one; and its last warp, which pushes least.
    const bool meets = simt::block_index() + 1 == simt::grid_size() &&
                       simt::warp_index() + 1 == simt::block_size() / simt::kWarp;
    const std::uint32_t meeting = meets ? begin_meeting(call_) : 0;
    push();
    if (simt::block_index() == 0 && simt::warp_index() == 0 && cells::clears(number_)) clear_row();
    bool ok = !meets || end_meeting(call_, meeting);
    const SharedRows team(args_, sums_of_units(), flag());
    ok = norm::Rows<Element, SharedRows>(args_, sums, team)
             .run([&](std::uint32_t row, std::uint32_t unit,
                      Words& x) { return combine(row, unit, x); },
                  ok);
    if (!simt::block_any(!ok)) cells::count_share(call_);
  }

 private:
  [[nodiscard]] SIMT_DEVICE std::uint32_t flag() const { return cells::kUsed | number_; }

  /// This lane's first cell of a row of cells; the second lies kWarp cells after it.
  SIMT_DEVICE Cell* cells_for(std::uint32_t receiver, std::uint64_t at) const {
    return reinterpret_cast<Cell*>(call_.scratch[receiver] + pushed_ + at * kCellRowBytes);
  }
  /// From the place of those of rank 0.
  SIMT_DEVICE const Cell* cells_of(std::uint32_t sender, const unsigned char* first) const {
    return reinterpret_cast<const Cell*>(first + std::uint64_t{sender} * call_.shape.cell_bytes);
  }
  /// In the region of the second ring that this rank has for itself, which no hop uses.
  SIMT_DEVICE std::uint64_t* sums_of_units() const {
    const ScratchLayout layout{call_.shape};
    return reinterpret_cast<std::uint64_t*>(call_.scratch[call_.rank] +
                                            layout.cells(half_, 1, call_.rank));
  }
  SIMT_DEVICE static void store_pair(Cell* to, const Pair& pair) {
    device::store_relaxed<device::system_scope>(to, pair.first);
    device::store_relaxed<device::system_scope>(to + simt::kWarp, pair.second);
  }

  SIMT_DEVICE void push() {
    const auto* const in = static_cast<const unsigned char*>(call_.in);
    const std::uint32_t all = args_.rows * units_;
    const std::uint32_t step = simt::grid_size() * (simt::block_size() / simt::kWarp);
    POLYPATH_NO_UNROLL
    for (std::uint32_t at = simt::warp_index() * simt::grid_size() + simt::block_index(); at < all;
         at += step) {
      const std::uint32_t row = at / units_;
      const std::uint32_t unit = at % units_;
      if (!cells::has_words(unit, bytes_)) continue;
      const Pair pair = cells::pair_of(norm::load_unit(in + row * bytes_, unit, bytes_), flag());
      POLYPATH_UNROLL
      for (std::uint32_t p = 0; p < kMaxPeers; ++p)
        if (p < call_.shape.ranks) store_pair(cells_for(p, at), pair);
    }
  }

  /// As cells::clear_row(): what this rank does not write in this call.
  SIMT_DEVICE_NOINLINE void clear_row() const {
    const std::uint64_t row =
        (number_ >> cells::kClearShift) % (call_.shape.cell_bytes / kCellRowBytes);
    const std::uint64_t all = std::uint64_t{args_.rows} * units_;
    const bool is_written = row < all && cells::has_words(row % units_, bytes_);
    const std::uint64_t next_ring = std::uint64_t{call_.shape.ranks} * call_.shape.cell_bytes;
    for (std::uint32_t to = 0; to < call_.shape.ranks; ++to) {
      Cell* const first_ring = cells_for(to, row);
      if (!is_written) store_pair(first_ring, Pair{});
      if (to != call_.rank) store_pair(first_ring + next_ring / sizeof(Cell), Pair{});
    }
    constexpr std::uint64_t kRowSums = kCellRowBytes / sizeof(std::uint64_t);
    const std::uint64_t sums = args_.team > 1 ? all : 0;
    for (std::uint64_t at = row * kRowSums + simt::lane_index(); at < (row + 1) * kRowSums;
         at += simt::kWarp)
      if (at >= sums)
        device::store_relaxed<device::device_scope>(sums_of_units() + at, std::uint64_t{0});
  }

  /// This lane's words of a unit, of all ranks. False: timed out.
  SIMT_DEVICE bool combine(std::uint32_t row, std::uint32_t unit, Words& x) {
    x = Words{};
    if (!cells::has_words(unit, bytes_)) return true;
    Pair pairs[kMaxPeers] = {};
    if (!wait_for_pairs(row * units_ + unit, pairs)) return false;
    const Reduction<Element, Combining::sums> operation(call_);
    POLYPATH_UNROLL
    for (int k = 0; k < cells::kWords; ++k) x.at[k] = combined_word(operation, pairs, k);
    return true;
  }

  /// Word k of all ranks. One after another: sums of all would take registers.
  template <typename Operation>
  SIMT_DEVICE std::uint64_t combined_word(const Operation& operation,
                                          const Pair (&pairs)[kMaxPeers], int k) const {
    constexpr int kElements = static_cast<int>(cells::kWord / sizeof(Element));
    Element elements[kElements];
    float sums[kElements];
    POLYPATH_UNROLL
    for (std::uint32_t p = 0; p < kMaxPeers; ++p) {
      if (p >= call_.shape.ranks) continue;
      const std::uint32_t from = has_mutant(Fault::own_part_first) ? in_order(p) : p;
      const std::uint64_t word = cells::words_of(pairs[from]).at[k];
      memcpy(elements, &word, cells::kWord);
      POLYPATH_UNROLL
      for (int e = 0; e < kElements; ++e) {
        const float next = operation.widen(elements[e]);
        sums[e] = p == 0 ? next : operation.combine(sums[e], next);
      }
    }
    POLYPATH_UNROLL
    for (int e = 0; e < kElements; ++e) elements[e] = operation.narrow(sums[e]);
    std::uint64_t result;
    memcpy(&result, elements, cells::kWord);
    return result;
  }

  /// For the mutant that begins with its own rank's part.
  SIMT_DEVICE std::uint32_t in_order(std::uint32_t index) const {
    if (index == 0) return call_.rank;
    return index <= call_.rank ? index - 1 : index;
  }

  /// Waits for this lane's pairs of all ranks; those that are there are not loaded again.
  SIMT_DEVICE bool wait_for_pairs(std::uint64_t at, Pair (&pairs)[kMaxPeers]) {
    std::uint32_t missing = (1U << call_.shape.ranks) - 1;
    if (has_mutant(Fault::part_not_waited_for) && call_.shape.ranks > 1)
      missing &= ~(1U << (call_.shape.ranks - 1));
    std::uint32_t seen = 0;
    const unsigned char* const first = received_ + at * kCellRowBytes;
    const auto ready = [&] {
      POLYPATH_UNROLL
      for (std::uint32_t p = 0; p < kMaxPeers; ++p) {
        const Cell* const from = cells_of(simt::opaque(p), first);
        if (((missing >> p) & 1U) != 0 ||
            (has_mutant(Fault::part_not_waited_for) && p + 1 == call_.shape.ranks)) {
          pairs[p].first = device::load_relaxed<device::system_scope>(from);
          pairs[p].second = device::load_relaxed<device::system_scope>(from + simt::kWarp);
        }
      }
      POLYPATH_UNROLL
      for (std::uint32_t p = 0; p < kMaxPeers; ++p)
        if (((missing >> p) & 1U) != 0) {
          const bool whole =
              has_mutant(Fault::half_a_pair_looked_at) || pairs[p].second.lap == flag();
          if (pairs[p].first.lap == flag() && whole)
            missing &= ~(1U << p);
          else
            seen = pairs[p].first.lap;
        }
      return missing == 0;
    };
    return device::wait_until(call_.wait_ctx, ready, [&] {
      return device::wait_target{31U - simt::countl_zero(missing), flag(), seen};
    });
  }

  const NormArgs& args_;
  const CollectiveArgs& call_;
  std::uint64_t pushed_;           // this lane's first cell for a receiver, in its scratch
  const unsigned char* received_;  // ... and from rank 0
  std::uint64_t bytes_;            // of a row of elements
  std::uint32_t units_;
  std::uint32_t number_;
  std::uint32_t half_;
};

template <typename Element>
SIMT_DEVICE void run(const NormArgs& args) {
  SIMT_SHARED(norm::RowSums, sums);
  if (args.call.shape.ranks <= kMaxRanks / 2)
    Call<Element, static_cast<int>(kMaxRanks / 2)>(args).run(sums);
  else
    Call<Element, static_cast<int>(kMaxRanks)>(args).run(sums);
}

}  // namespace polypath::all_reduce_norm
