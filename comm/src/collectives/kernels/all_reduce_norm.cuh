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
// A block counts its share of the call (collective_ll.cuh) once it has waited for the last time, or
// has timed out. Earlier, as calls by cells do it, gains nothing here: the block meets in any case.
//
// In place: the input is read by the threads that push it, of any block. Its cells hold its data,
// so output is stored over an input that was read on all its places.
#pragma once

#include <cstdint>

#include "collectives/kernels/rms_norm.cuh"

namespace polypath::all_reduce_norm {

using cells::Cell;
using cells::Pair;
using norm::kTwos;
using norm::Part;
using norm::Place;

/// Blocks of one GPU that share rows.
class SharedRows {
 public:
  SIMT_DEVICE explicit SharedRows(const NormArgs& args)
      : args_(args),
        number_(args.team == 1 ? simt::block_index() : simt::block_index() / args.team),
        member_(simt::block_index() - number_ * args.team),
        count_(args.team == 1 ? simt::grid_size() : simt::grid_size() / args.team) {}

  /// Before they exchange sums: `sums`, a word for each unit of the call.
  SIMT_DEVICE void begin(std::uint64_t* sums, std::uint32_t flag) {
    sums_ = sums;
    flag_ = flag;
  }

  SIMT_DEVICE std::uint32_t size() const { return args_.team; }
  SIMT_DEVICE std::uint32_t member() const { return member_; }
  SIMT_DEVICE std::uint32_t number() const { return number_; }
  SIMT_DEVICE std::uint32_t count() const { return count_; }

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
    if (simt::opaque(args_.team) > 1 && simt::warp_index() == 0)
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
  const std::uint32_t number_;
  const std::uint32_t member_;
  const std::uint32_t count_;
  std::uint64_t* sums_ = nullptr;
  std::uint32_t flag_ = 0;
};

/// As cells::clear_row(): one warp, rarely, clears what this rank does not write of a row of cells.
SIMT_DEVICE_NOINLINE void clear_row(const NormArgs& args, std::uint32_t number) {
  const CollectiveArgs& call = args.call;
  const ScratchLayout layout{call.shape};
  const std::uint32_t units = norm_units(args.hidden);
  const std::uint32_t row =
      (number >> cells::kClearShift) % (call.shape.cell_bytes / kCellRowBytes);
  const std::uint32_t all = args.rows * units;
  const bool is_written =
      row < all && cells::has_words(row % units, std::uint64_t{args.hidden} * 2);
  const auto clear = [&](std::uint32_t to, std::uint32_t ring) {
    Cell* const at =
        reinterpret_cast<Cell*>(call.scratch[to] + layout.cells(number % 2, ring, call.rank) +
                                std::uint64_t{row} * kCellRowBytes) +
        simt::lane_index();
    device::store_relaxed<device::system_scope>(at, Cell{});
    device::store_relaxed<device::system_scope>(at + simt::kWarp, Cell{});
  };
  for (std::uint32_t to = 0; to < call.shape.ranks; ++to) {
    if (!is_written) clear(to, 0);
    if (to != call.rank) clear(to, 1);
  }
  auto* const sums_of_units = reinterpret_cast<std::uint64_t*>(
      call.scratch[call.rank] + layout.cells(number % 2, 1, call.rank));
  constexpr std::uint64_t kRowSums = kCellRowBytes / sizeof(std::uint64_t);
  const std::uint64_t sums = args.team > 1 ? all : 0;
  for (std::uint64_t at = row * kRowSums + simt::lane_index(); at < (row + 1) * kRowSums;
       at += simt::kWarp)
    if (at >= sums)
      device::store_relaxed<device::device_scope>(sums_of_units + at, std::uint64_t{0});
}

/// One call, as one thread sees it, of at most `kMaxPeers` ranks.
template <typename Element, int kMaxPeers>
class Call {
 public:
  SIMT_DEVICE explicit Call(const NormArgs& args)
      : args_(args),
        call_(args.call),
        lane_(simt::lane_index()),
        bytes_(args.hidden * static_cast<std::uint32_t>(sizeof(Element))),
        units_(norm_units(args.hidden)) {
    const ScratchLayout layout{call_.shape};
    pushed_ = simt::opaque(layout.cells(0, 0, call_.rank) + lane_ * sizeof(Cell));
    received_ =
        simt::opaque(call_.scratch[call_.rank] + layout.cells(0, 0, 0) + lane_ * sizeof(Cell));
    half_bytes_ =
        simt::opaque(static_cast<std::uint32_t>(layout.cells(1, 0, 0) - layout.cells(0, 0, 0)));
  }

  SIMT_DEVICE void run(norm::RowSums& row_sums) {
    simt::grid_dependency_wait();
    if (has_mutant(Fault::call_counted_too_early)) count();
    // A block that only pushes, if there is one; and its last warp, which pushes least.
    const bool meets = simt::block_index() + 1 == simt::grid_size() &&
                       simt::warp_index() + 1 == simt::block_size() / simt::kWarp;
    const std::uint32_t meeting = meets ? begin_meeting(call_) : 0;
    // Loads that need no other rank are issued before the first of them is looked at. Only warps
    // with work load the count: all of them at one address would wait for each other.
    const std::uint32_t first = simt::warp_index() * simt::grid_size() + simt::block_index();
    const bool pushes = first < args_.rows * units_;
    std::uint64_t calls = 0;
    Part input{};
    Place from{};
    if (pushes) {
      calls = simt::load_relaxed(cells::calls_of(call_));
      input = load_input(first, from);
    }
    SharedRows team(args_);
    norm::Rows<Element, SharedRows, kIsSmall> rows(args_, row_sums, team);
    if (!pushes && rows.has_row()) calls = simt::load_relaxed(cells::calls_of(call_));
    begin(calls / kCallParts);
    push(first, input, from);
    team.begin(sums_of_units(), flag());
    if (pushes && first == 0 && cells::clears(number_)) clear_row(args_, number_);
    const bool ok = !meets || end_meeting(call_, meeting);
    rows.run([&](std::uint32_t row, std::uint32_t unit,
                 const auto& use) { return combine(row, unit, use); },
             ok,
             [&] {
               if (!has_mutant(Fault::call_counted_too_early)) count();
             });
  }

 private:
  /// There are registers for more than the ranks' pairs.
  static constexpr bool kIsSmall = kMaxPeers <= static_cast<int>(kMaxRanks / 2);

  /// By the last thread, whose warp has fewest units.
  SIMT_DEVICE void count() const { cells::count_share(call_, simt::block_size() - 1); }

  SIMT_DEVICE void begin(std::uint64_t number) {
    number_ = has_mutant(Fault::flag_not_counted)
                  ? 0
                  : static_cast<std::uint32_t>(number) & ~cells::kUsed;
    half_ = has_mutant(Fault::halves_not_alternated) ? 0 : static_cast<std::uint32_t>(number % 2);
    if (half_ == 0) return;
    pushed_ += half_bytes_;
    received_ += half_bytes_;
  }

  [[nodiscard]] SIMT_DEVICE std::uint32_t flag() const { return cells::kUsed | number_; }
  [[nodiscard]] SIMT_DEVICE std::uint32_t ranks() const {
    return kMaxPeers == 2 ? 2 : call_.shape.ranks;
  }

  /// This lane's first cell of a row of cells; the second lies kWarp cells after it.
  SIMT_DEVICE Cell* cells_for(std::uint32_t receiver, std::uint32_t at) const {
    return reinterpret_cast<Cell*>(call_.scratch[receiver] + pushed_ +
                                   std::uint64_t{at} * kCellRowBytes);
  }
  /// In the region of the second ring that this rank has for itself, which no hop uses.
  SIMT_DEVICE std::uint64_t* sums_of_units() const {
    const ScratchLayout layout{call_.shape};
    return reinterpret_cast<std::uint64_t*>(call_.scratch[call_.rank] +
                                            layout.cells(half_, 1, call_.rank));
  }

  /// Unit `at` of all rows, and its place in its row.
  SIMT_DEVICE Part load_input(std::uint32_t at, Place& place) const {
    const std::uint32_t row = at / units_;
    place = norm::place_of(at - row * units_, lane_, bytes_);
    return norm::load_part(
        static_cast<const unsigned char*>(call_.in) + std::uint64_t{row} * bytes_, place);
  }

  /// Pushes this warp's units of the input, of which the first was loaded.
  SIMT_DEVICE void push(std::uint32_t first, Part input, Place from) {
    const std::uint32_t all = args_.rows * units_;
    const std::uint32_t step = simt::grid_size() * (simt::block_size() / simt::kWarp);
    POLYPATH_NO_UNROLL
    for (std::uint32_t at = first; at < all;) {
      if (from.rest != 0) push_part(at, input);
      at += step;
      if (at < all) input = load_input(at, from);
    }
  }
  SIMT_DEVICE void push_part(std::uint32_t at, const Part& part) const {
    const std::uint32_t (&data)[kTwos] = part.at;
    const Pair pair{{{data[0], data[1], data[2]}, flag()}, {{data[3], data[4], data[5]}, flag()}};
    POLYPATH_UNROLL
    for (std::uint32_t i = 0; i < kMaxPeers; ++i) {
      if (i >= ranks()) continue;
      // The peers first. In one order, all of more ranks would first send to rank 0.
      std::uint32_t receiver = kMaxPeers == 2 ? i : call_.rank + 1 + i;
      if (receiver >= ranks()) receiver -= ranks();
      Cell* const to = cells_for(receiver, at);
      device::store_relaxed<device::system_scope>(to, pair.first);
      device::store_relaxed<device::system_scope>(to + simt::kWarp, pair.second);
    }
  }

  /// Calls `use(x)` with this lane's part of a unit, of all ranks; 0 after the end of the row. All
  /// lanes of a warp; false, and no call: one has timed out.
  template <typename Use>
  SIMT_DEVICE bool combine(std::uint32_t row, std::uint32_t unit, const Use& use) {
    Pair pairs[kMaxPeers] = {};
    const bool has_come =
        norm::place_of(unit, lane_, bytes_).rest == 0 || wait_for_pairs(row * units_ + unit, pairs);
    // Lanes whose data come first would add them up before the others look again.
    if (!simt::warp_all(has_come)) return false;
    Part x;
    if constexpr (kMaxPeers == 2) {
      POLYPATH_UNROLL
      for (int i = 0; i < kTwos; ++i)
        x.at[i] = norm::sums_of_two<Element>(word_of(pairs[0], i), word_of(pairs[1], i));
    } else if constexpr (kIsSmall) {
      combine_words<kTwos>(pairs, 0, x);
    } else {  // sums of all would take registers
      POLYPATH_UNROLL
      for (int i = 0; i < kTwos; ++i) combine_words<1>(pairs, i, x);
    }
    use(x);
    return true;
  }

  SIMT_DEVICE static std::uint32_t word_of(const Pair& pair, int i) {
    return i < kTwos / 2 ? pair.first.data[i] : pair.second.data[i - kTwos / 2];
  }

  /// `kCount` words of 4 bytes, from `begin` on, of all ranks in their order.
  template <int kCount>
  SIMT_DEVICE void combine_words(const Pair (&pairs)[kMaxPeers], int begin, Part& x) const {
    const Reduction<Element, Combining::sums> operation(call_);
    norm::Two sums[kCount];
    POLYPATH_UNROLL
    for (std::uint32_t p = 0; p < kMaxPeers; ++p) {
      if (p >= ranks()) continue;
      const Pair& pair = pairs[has_mutant(Fault::own_part_first) ? in_order(p) : p];
      POLYPATH_UNROLL
      for (int i = 0; i < kCount; ++i) {
        const norm::Two next = norm::widened<Element>(word_of(pair, begin + i));
        sums[i] = p == 0 ? next
                         : norm::Two{operation.combine(sums[i].low, next.low),
                                     operation.combine(sums[i].high, next.high)};
      }
    }
    POLYPATH_UNROLL
    for (int i = 0; i < kCount; ++i) x.at[begin + i] = norm::narrowed<Element>(sums[i]);
  }

  /// For the mutant that begins with its own rank's part.
  SIMT_DEVICE std::uint32_t in_order(std::uint32_t index) const {
    if (index == 0) return call_.rank;
    return index <= call_.rank ? index - 1 : index;
  }

  /// Waits for this lane's pairs of all ranks; those that are there are not loaded again.
  SIMT_DEVICE bool wait_for_pairs(std::uint32_t at, Pair (&pairs)[kMaxPeers]) {
    std::uint32_t missing = (1U << ranks()) - 1;
    if (has_mutant(Fault::part_not_waited_for) && ranks() > 1) missing &= ~(1U << (ranks() - 1));
    const unsigned char* const first = received_ + std::uint64_t{at} * kCellRowBytes;
    const auto ready = [&] {
      POLYPATH_UNROLL
      for (std::uint32_t p = 0; p < kMaxPeers; ++p) {
        // Places of eight would take as many registers as their pairs.
        const std::uint32_t rank = kIsSmall ? p : simt::opaque(p);
        const auto* const from =
            reinterpret_cast<const Cell*>(first + std::uint64_t{rank} * call_.shape.cell_bytes);
        if (((missing >> p) & 1U) != 0 ||
            (has_mutant(Fault::part_not_waited_for) && p + 1 == ranks())) {
          pairs[p].first = device::load_relaxed<device::system_scope>(from);
          pairs[p].second = device::load_relaxed<device::system_scope>(from + simt::kWarp);
        }
      }
      POLYPATH_UNROLL
      for (std::uint32_t p = 0; p < kMaxPeers; ++p) {
        const bool whole =
            has_mutant(Fault::half_a_pair_looked_at) || pairs[p].second.lap == flag();
        if (((missing >> p) & 1U) != 0 && pairs[p].first.lap == flag() && whole)
          missing &= ~(1U << p);
      }
      return missing == 0;
    };
    return device::wait_until(call_.wait_ctx, ready, [&] {
      const std::uint32_t rank = 31U - simt::countl_zero(missing);
      std::uint32_t seen = 0;
      POLYPATH_UNROLL
      for (std::uint32_t p = 0; p < kMaxPeers; ++p)
        if (p == rank) seen = pairs[p].first.lap;
      return device::wait_target{rank, flag(), seen};
    });
  }

  const NormArgs& args_;
  const CollectiveArgs& call_;
  const std::uint32_t lane_;
  const std::uint32_t bytes_;  // of a row of elements
  const std::uint32_t units_;
  std::uint64_t pushed_;           // this lane's first cell for a receiver, in its scratch
  const unsigned char* received_;  // ... and from rank 0
  std::uint32_t half_bytes_;       // from the first half to the second
  std::uint32_t number_ = 0;
  std::uint32_t half_ = 0;
};

/// Waits itself for earlier kernels: what it works out before takes no memory.
template <typename Element>
SIMT_DEVICE void run(const NormArgs& args) {
  SIMT_SHARED(norm::RowSums, sums);
  if (args.call.shape.ranks == 2)
    Call<Element, 2>(args).run(simt::as_shared(sums));
  else if (args.call.shape.ranks <= kMaxRanks / 2)
    Call<Element, static_cast<int>(kMaxRanks / 2)>(args).run(simt::as_shared(sums));
  else
    Call<Element, static_cast<int>(kMaxRanks)>(args).run(simt::as_shared(sums));
}

}  // namespace polypath::all_reduce_norm
