// Collectives by lines: NCCL's LL128 protocol, for buffers that are too large for cells to be fast
// and too small for the tiles of channels.
//
// A line has 128 bytes: 120 of data, and 8 of flag at its end. Eight lanes of a warp store it by
// one instruction, 16 bytes each, and load it so. PTX promises that each lane's 16 bytes come
// together, and nothing of the line. So lines are for paths on which a trial has found all of them
// whole (comm/ll128_probe.hpp). There a line that holds the flag of this call holds its data: no
// fence and no second message is needed, as with cells, and 1/15 more bytes go than there are data,
// where cells take 1/3.
//
// Everything else is as with cells (collective_ll.cuh): regions, halves, hops, the order of pushing,
// combining and taking, the count of calls on the device, and why there is no deadlock. What
// differs:
// - The flag is the number of the call, in 64 bits. It does not come round, so nothing is cleared.
//   Lines have memory of their own, where bytes 120 to 127 of a line are never data.
// - A warp works together. It moves a row: 8 lines, of which each lane has 16 bytes in the first
//   four and in the last four. It has all of a row, or waits.
// - A lane loads and stores user memory by 16 bytes. Of 60 such words of a row, lane l has word l
//   and word 32 + l - l / 8. The eighth lane of a line has one alone, and sends half of it with each
//   of its flags. All ranks place the words so; lanes combine what they have.
// - Ranks push to their peers in different orders, and so do the warps of a rank. In one order, all
//   would first send to rank 0, whose port would hold up the others.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "collectives/kernels/call_meeting.cuh"
#include "collectives/kernels/collective_args.h"
#include "collectives/kernels/mutants.h"
#include "collectives/kernels/rank_roles.h"
#include "collectives/kernels/reductions.cuh"
#include "polypath/device/wait.cuh"
#include "simt/platform.cuh"

namespace polypath::lines {

inline constexpr std::uint32_t kLanes = 8;  ///< of a line
inline constexpr std::uint32_t kWord = 16;
static_assert(kLineRowBytes == 2 * simt::kWarp * kWord);
static_assert(kLineRowData == kLineRowBytes - 2 * (simt::kWarp / kLanes) * 8);

using Packet = device::ll_packet;

/// A lane's part of a row as lines have it: two stores of 16 bytes. Of the eighth lane of a line,
/// at[1] and at[3] are flags.
struct Quad {
  std::uint64_t at[4];
};

/// A word of user memory.
struct alignas(16) Word {
  std::uint64_t low;
  std::uint64_t high;
};

/// Sources and peers whose rows a warp has in registers at once.
inline constexpr int kAtOnce = 4;

SIMT_DEVICE bool has_flag() { return simt::lane_index() % kLanes == kLanes - 1; }

/// Where this lane's two words of a row lie in a piece.
SIMT_DEVICE std::uint64_t first_place(std::uint32_t row) {
  return std::uint64_t{row} * kLineRowData + simt::lane_index() * kWord;
}
SIMT_DEVICE std::uint64_t second_place(std::uint32_t row) {
  const unsigned lane = simt::lane_index();
  return std::uint64_t{row} * kLineRowData + (simt::kWarp + lane - lane / kLanes) * kWord;
}
SIMT_DEVICE std::uint32_t rows_of(std::uint64_t length) {
  return static_cast<std::uint32_t>((length + kLineRowData - 1) / kLineRowData);
}

/// The largest access that a piece allows everywhere: 1, 2, 4 or 8 bytes.
SIMT_DEVICE std::uint32_t step_of(const unsigned char* piece, std::uint64_t length) {
  const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(piece) | length | 8;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

template <typename Unsigned>
SIMT_DEVICE std::uint64_t load_steps(const unsigned char* from, std::uint32_t bytes) {
  std::uint64_t word = 0;
  POLYPATH_NO_UNROLL
  for (std::uint32_t b = 0; b < bytes; b += sizeof(Unsigned))
    word |= std::uint64_t{simt::load_streaming(reinterpret_cast<const Unsigned*>(from + b))}
            << (8 * b);
  return word;
}
template <typename Unsigned>
SIMT_DEVICE void store_steps(unsigned char* to, std::uint32_t bytes, std::uint64_t word) {
  POLYPATH_NO_UNROLL
  for (std::uint32_t b = 0; b < bytes; b += sizeof(Unsigned))
    simt::store_streaming(reinterpret_cast<Unsigned*>(to + b),
                          static_cast<Unsigned>(word >> (8 * b)));
}

/// 8 bytes of a piece that is not aligned to words, or the last of it: those after its end are 0.
SIMT_DEVICE_NOINLINE std::uint64_t load_part(const unsigned char* piece, std::uint64_t place,
                                             std::uint64_t length) {
  if (place >= length) return 0;
  const auto bytes = static_cast<std::uint32_t>(length - place < 8 ? length - place : 8);
  const unsigned char* const from = piece + place;
  switch (step_of(piece, length)) {
    case 1: return load_steps<std::uint8_t>(from, bytes);
    case 2: return load_steps<std::uint16_t>(from, bytes);
    case 4: return load_steps<std::uint32_t>(from, bytes);
    default: return load_steps<std::uint64_t>(from, bytes);
  }
}
SIMT_DEVICE_NOINLINE void store_part(unsigned char* piece, std::uint64_t place,
                                     std::uint64_t length, std::uint64_t word) {
  if (place >= length) return;
  const auto bytes = static_cast<std::uint32_t>(length - place < 8 ? length - place : 8);
  unsigned char* const to = piece + place;
  switch (step_of(piece, length)) {
    case 1: return store_steps<std::uint8_t>(to, bytes, word);
    case 2: return store_steps<std::uint16_t>(to, bytes, word);
    case 4: return store_steps<std::uint32_t>(to, bytes, word);
    default: return store_steps<std::uint64_t>(to, bytes, word);
  }
}

/// A piece of user memory. `kAligned`: addresses and lengths are multiples of 16 bytes.
template <bool kAligned>
class Piece {
 public:
  SIMT_DEVICE Piece(const void* begin, std::uint64_t offset, std::uint64_t length)
      : begin_(static_cast<const unsigned char*>(begin) + offset), length_(length) {}

  [[nodiscard]] SIMT_DEVICE bool is_at(const Piece& other) const { return begin_ == other.begin_; }

  /// A row, by all lanes of a warp; bytes after the end are 0.
  [[nodiscard]] SIMT_DEVICE Quad load(std::uint32_t row) const {
    const bool is_last = has_flag();
    const Word first = load_word(first_place(row), true);
    const Word second = load_word(second_place(row), !is_last);
    return {{first.low, first.high, is_last ? first.high : second.low, second.high}};
  }
  SIMT_DEVICE void store(std::uint32_t row, const Quad& quad) const {
    const bool is_last = has_flag();
    store_word(first_place(row), true, {quad.at[0], is_last ? quad.at[2] : quad.at[1]});
    store_word(second_place(row), !is_last, {quad.at[2], quad.at[3]});
  }

 private:
  [[nodiscard]] SIMT_DEVICE bool is_whole(std::uint64_t place) const {
    if (kAligned) return place < length_;
    return reinterpret_cast<std::uintptr_t>(begin_) % kWord == 0 && place + kWord <= length_;
  }
  [[nodiscard]] SIMT_DEVICE Word load_word(std::uint64_t place, bool is_wanted) const {
    Word word{};
    if (is_wanted && is_whole(place))
      word = simt::load_streaming(reinterpret_cast<const Word*>(begin_ + place));
    else if (!kAligned && is_wanted)
      word = {load_part(begin_, place, length_), load_part(begin_, place + 8, length_)};
    return word;
  }
  SIMT_DEVICE void store_word(std::uint64_t place, bool is_wanted, const Word& word) const {
    auto* const begin = const_cast<unsigned char*>(begin_);
    if (is_wanted && is_whole(place)) {
      simt::store_streaming(reinterpret_cast<Word*>(begin + place), word);
    } else if (!kAligned && is_wanted) {
      store_part(begin, place, length_, word.low);
      store_part(begin, place + 8, length_, word.high);
    }
  }

  const unsigned char* begin_;
  std::uint64_t length_;
};

SIMT_DEVICE Packet packet_of(std::uint64_t low, std::uint64_t high) {
  return {{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
           static_cast<std::uint32_t>(high)},
          static_cast<std::uint32_t>(high >> 32)};
}
SIMT_DEVICE std::uint64_t low_of(const Packet& packet) {
  return packet.data[0] | std::uint64_t{packet.data[1]} << 32;
}
SIMT_DEVICE std::uint64_t high_of(const Packet& packet) {
  return packet.data[2] | std::uint64_t{packet.lap} << 32;
}

SIMT_DEVICE bool in_set(std::uint32_t set, std::uint32_t rank) { return ((set >> rank) & 1U) != 0; }

/// Combines the elements of a lane's quads, in the order in which they are added.
template <typename Operation>
class Combination {
 public:
  SIMT_DEVICE explicit Combination(const CollectiveArgs& args) : operation_(args) {}

  SIMT_DEVICE void begin(const Quad& quad) {
    Element elements[kElements];
    memcpy(elements, &quad, sizeof quad);
    POLYPATH_UNROLL
    for (int e = 0; e < kElements; ++e) sums_[e] = operation_.widen(elements[e]);
  }
  SIMT_DEVICE void add(const Quad& quad) {
    Element elements[kElements];
    memcpy(elements, &quad, sizeof quad);
    POLYPATH_UNROLL
    for (int e = 0; e < kElements; ++e)
      sums_[e] = operation_.combine(sums_[e], operation_.widen(elements[e]));
  }
  [[nodiscard]] SIMT_DEVICE Quad result() const {
    Element elements[kElements];
    POLYPATH_UNROLL
    for (int e = 0; e < kElements; ++e) elements[e] = operation_.narrow(sums_[e]);
    Quad quad;
    memcpy(&quad, elements, sizeof quad);
    return quad;
  }

 private:
  using Element = typename Operation::Element;
  static constexpr int kElements = static_cast<int>(sizeof(Quad) / sizeof(Element));

  Operation operation_;
  typename Operation::Sum sums_[kElements];
};

/// Where nothing is combined: the one quad that there is.
template <>
class Combination<Bytes> {
 public:
  SIMT_DEVICE explicit Combination(const CollectiveArgs&) {}
  SIMT_DEVICE void begin(const Quad& quad) { quad_ = quad; }
  SIMT_DEVICE void add(const Quad& quad) { quad_ = quad; }
  [[nodiscard]] SIMT_DEVICE Quad result() const { return quad_; }

 private:
  Quad quad_{};
};

/// One call, as one thread sees it. All lanes of a warp go through it together.
template <typename Element, bool kAligned>
class Call {
  using Memory = Piece<kAligned>;

 public:
  SIMT_DEVICE Call(const CollectiveArgs& args, const Part& part)
      : args_(args), part_(part), layout_{args.shape} {
    if (has_mutant(Fault::call_counted_too_early)) count_own_share();
    const std::uint64_t number = simt::load_relaxed(calls()) / kCallParts;
    flag_ = has_mutant(Fault::flag_not_counted) ? 1 : number + 1;
    half_ = has_mutant(Fault::halves_not_alternated) ? 0 : static_cast<std::uint32_t>(number % 2);
    first_row_ = simt::warp_index() * simt::grid_size() + simt::block_index();
    row_step_ = simt::grid_size() * (simt::block_size() / simt::kWarp);
  }

  /// The same for all lanes of a warp. False: timed out.
  SIMT_DEVICE bool run() {
    // The last warp has no rows in a small call, and no more than others in any.
    const bool meets =
        simt::block_index() == 0 && simt::warp_index() + 1 == simt::block_size() / simt::kWarp;
    const std::uint32_t meeting = meets ? begin_meeting(args_) : 0;
    push();
    if (meets && !simt::warp_all(end_meeting(args_, meeting))) return false;
    return combine() && take();
  }

  /// All threads of the block, after run(): true for those that did not time out.
  SIMT_DEVICE void count(bool done) const {
    const bool aborted = simt::barrier_any(0, simt::block_size(), !done);
    if (!aborted && !has_mutant(Fault::call_counted_too_early)) count_own_share();
  }

 private:
  SIMT_DEVICE std::uint64_t* calls() const {
    return reinterpret_cast<std::uint64_t*>(args_.scratch[args_.rank] +
                                            ScratchLayout::line_calls());
  }
  SIMT_DEVICE void count_own_share() const {
    if (simt::thread_index() != 0) return;
    const std::uint32_t blocks = simt::grid_size();
    const std::uint32_t rest = simt::block_index() == 0 ? kCallParts % blocks : 0;
    simt::red_add_relaxed(calls(), std::uint64_t{kCallParts / blocks + rest});
  }
  SIMT_DEVICE Memory in(std::uint32_t rank) const {
    return {args_.in, part_.pieces.in(rank), part_.pieces.length(rank)};
  }
  SIMT_DEVICE Memory out(std::uint32_t rank) const {
    return {args_.out, part_.pieces.out(rank), part_.pieces.length(rank)};
  }
  /// This lane's place in the first four lines of a row; in the others it is kWarp packets later.
  SIMT_DEVICE Packet* row_at(std::uint32_t receiver, std::uint32_t ring, std::uint32_t sender,
                             std::uint32_t row) const {
    return reinterpret_cast<Packet*>(args_.lines[receiver] +
                                     layout_.region(half_, ring, receiver, sender) +
                                     std::uint64_t{row} * kLineRowBytes) +
           simt::lane_index();
  }

  /// The peers of this rank in the order in which this warp pushes to them.
  class Peers {
   public:
    SIMT_DEVICE Peers(const CollectiveArgs& args, std::uint32_t turn)
        : own_(args.rank), last_(args.shape.ranks - 1), left_(last_), next_(args.rank) {
      advance(1 + (last_ == 0 ? 0 : turn % last_));
    }
    [[nodiscard]] SIMT_DEVICE bool has_more() const { return left_ != 0; }
    SIMT_DEVICE std::uint32_t take() {
      const std::uint32_t peer = next_;
      --left_;
      advance(1);
      if (next_ == own_) advance(1);
      return peer;
    }

   private:
    SIMT_DEVICE void advance(std::uint32_t by) {
      next_ += by;
      if (next_ > last_) next_ -= last_ + 1;
    }
    std::uint32_t own_;
    std::uint32_t last_;  ///< rank
    std::uint32_t left_;  ///< peers
    std::uint32_t next_;
  };

  SIMT_DEVICE void push_row(std::uint32_t to, std::uint32_t ring, std::uint32_t row,
                            const Quad& quad) const {
    Packet* const at = row_at(to, ring, args_.rank, row);
    const bool is_last = has_flag();
    if (has_mutant(Fault::line_flag_early)) {
      const Packet empty = packet_of(0, is_last ? flag_ : 0);
      device::store_line<device::system_scope>(at, empty);
      device::store_line<device::system_scope>(at + simt::kWarp, empty);
    }
    device::store_line<device::system_scope>(at,
                                             packet_of(quad.at[0], is_last ? flag_ : quad.at[1]));
    device::store_line<device::system_scope>(at + simt::kWarp,
                                             packet_of(quad.at[2], is_last ? flag_ : quad.at[3]));
  }
  SIMT_DEVICE void push_row_to(std::uint32_t set, std::uint32_t ring, std::uint32_t row,
                               const Quad& quad) const {
    Peers peers(args_, row);
    POLYPATH_NO_UNROLL
    while (peers.has_more()) {
      const std::uint32_t peer = peers.take();
      if (in_set(set, peer)) push_row(peer, ring, row, quad);
    }
  }

  SIMT_DEVICE void push() const {
    const RankRoles& roles = part_.roles;
    if (roles.push == 0) return;
    const std::uint32_t rows = rows_of(part_.pieces.longest);
    POLYPATH_NO_UNROLL
    for (std::uint32_t row = first_row_; row < rows; row += row_step_) {
      if (part_.pieces.in_stride == 0)
        push_row_to(roles.push, roles.ring, row, in(0).load(row));
      else
        push_pieces(row);
    }
  }
  /// Of each peer its own piece: kAtOnce of them are loaded before the first is stored.
  SIMT_DEVICE void push_pieces(std::uint32_t row) const {
    const RankRoles& roles = part_.roles;
    Peers peers(args_, row);
    POLYPATH_NO_UNROLL
    while (peers.has_more()) {
      Quad quads[kAtOnce];
      std::uint32_t to[kAtOnce];
      POLYPATH_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        to[k] = peers.has_more() ? peers.take() : args_.rank;
        if (!in_set(roles.push, to[k]) || row >= rows_of(part_.pieces.length(to[k])))
          to[k] = args_.rank;
        else
          quads[k] = in(to[k]).load(row);
      }
      POLYPATH_UNROLL
      for (int k = 0; k < kAtOnce; ++k)
        if (to[k] != args_.rank) push_row(to[k], roles.ring, row, quads[k]);
    }
  }

  /// Waits for a row from those of `senders` that are `base` to base + kAtOnce - 1. The same for
  /// all lanes.
  SIMT_DEVICE bool wait_for_row(std::uint32_t senders, std::uint32_t base, std::uint32_t ring,
                                std::uint32_t row, Quad (&quads)[kAtOnce]) const {
    std::uint32_t missing = 0;
    std::uint64_t seen = 0;
    bool has_looked = false;
    const auto ready = [&] {
      bool all = true;
      POLYPATH_UNROLL
      for (std::uint32_t k = 0; k < kAtOnce; ++k)
        if (in_set(senders, base + k)) look_at_row(quads[k], base + k, ring, row, has_looked);
      POLYPATH_UNROLL
      for (std::uint32_t k = 0; k < kAtOnce; ++k)
        if (in_set(senders, base + k) && has_flag() && !has_flags(quads[k])) {
          all = false;
          missing = base + k;
          seen = quads[k].at[1];
        }
      if (has_mutant(Fault::data_before_flag)) has_looked = true;
      return all;
    };
    return device::wait_until_all(device::this_warp{}, args_.wait_ctx, ready,
                                  [&] { return device::wait_target{missing, flag_, seen}; });
  }
  SIMT_DEVICE void look_at_row(Quad& quad, std::uint32_t sender, std::uint32_t ring,
                               std::uint32_t row, bool has_looked) const {
    const Packet* const at = row_at(args_.rank, ring, sender, row);
    const Packet first = device::load_line<device::system_scope>(at);
    const Packet second = device::load_line<device::system_scope>(at + simt::kWarp);
    if (has_looked && !has_flag()) return;  // a mutant
    quad = {{low_of(first), high_of(first), low_of(second), high_of(second)}};
  }
  SIMT_DEVICE bool has_flags(const Quad& quad) const {
    const bool second = has_mutant(Fault::one_line_of_row_seen) || is_flag(quad.at[3]);
    return is_flag(quad.at[1]) && second;
  }
  SIMT_DEVICE bool is_flag(std::uint64_t seen) const {
    return seen == flag_ || (has_mutant(Fault::older_flag_accepted) && seen + 2 == flag_);
  }

  SIMT_DEVICE bool combine() const {
    if (!part_.roles.owner) return true;
    if constexpr (std::is_same_v<Element, Bytes>) {
      return combine_by<Bytes>();
    } else {
      bool done = false;
      with_combining(args_.reduction, [&](auto combining) {
        done = combine_by<Reduction<Element, decltype(combining)::value>>();
      });
      return done;
    }
  }

  template <typename Operation>
  SIMT_DEVICE bool combine_by() const {
    const RankRoles& roles = part_.roles;
    const std::uint32_t rank = args_.rank;
    const std::uint32_t sources = roles.combine | (roles.own_part ? 1U << rank : 0);
    const std::uint32_t rows = rows_of(part_.pieces.length(rank));
    POLYPATH_NO_UNROLL
    for (std::uint32_t row = first_row_; row < rows; row += row_step_) {
      Combination<Operation> combination(args_);
      POLYPATH_NO_UNROLL
      for (std::uint32_t base = 0; base < args_.shape.ranks; base += kAtOnce) {
        Quad quads[kAtOnce];
        POLYPATH_UNROLL
        for (std::uint32_t k = 0; k < kAtOnce; ++k)
          if (base + k == rank && roles.own_part) quads[k] = in(rank).load(row);
        if (!wait_for_row(roles.combine, base, 0, row, quads)) return false;
        if (has_mutant(Fault::own_part_first) && rank < kAtOnce && base == 0) {
          const Quad first = quads[0];
          quads[0] = quads[rank];
          quads[rank] = first;
        }
        // What combines has parts of all ranks, so the first one is that of rank 0.
        POLYPATH_UNROLL
        for (std::uint32_t k = 0; k < kAtOnce; ++k)
          if (k == 0 && base == 0)
            combination.begin(quads[0]);
          else if (in_set(sources, base + k))
            combination.add(quads[k]);
      }
      const Quad result = combination.result();
      push_row_to(roles.results, 1, row, result);
      if (roles.owner_keeps) out(rank).store(row, result);
    }
    return true;
  }

  SIMT_DEVICE bool take() const {
    const RankRoles& roles = part_.roles;
    if ((roles.take | roles.keep) == 0) return true;
    const std::uint32_t rows = rows_of(part_.pieces.longest);
    POLYPATH_NO_UNROLL
    for (std::uint32_t row = first_row_; row < rows; row += row_step_) {
      POLYPATH_NO_UNROLL
      for (std::uint32_t base = 0; base < args_.shape.ranks; base += kAtOnce)
        if (!take_row(base, row)) return false;
    }
    return true;
  }
  SIMT_DEVICE bool take_row(std::uint32_t base, std::uint32_t row) const {
    const RankRoles& roles = part_.roles;
    std::uint32_t senders = 0;
    POLYPATH_UNROLL
    for (std::uint32_t k = 0; k < kAtOnce; ++k) {
      const std::uint32_t p = base + k;
      if (p >= args_.shape.ranks || row >= rows_of(part_.pieces.length(p))) continue;
      if (in_set(roles.keep, p) && !in(p).is_at(out(p))) out(p).store(row, in(p).load(row));
      senders |= roles.take & (1U << p);
    }
    Quad quads[kAtOnce];
    if (!wait_for_row(senders, base, 1, row, quads)) return false;
    POLYPATH_UNROLL
    for (std::uint32_t k = 0; k < kAtOnce; ++k)
      if (in_set(senders, base + k)) out(base + k).store(row, quads[k]);
    return true;
  }

  const CollectiveArgs& args_;
  const Part& part_;
  LineLayout layout_;
  std::uint32_t half_;
  std::uint64_t flag_;
  std::uint32_t first_row_;
  std::uint32_t row_step_;
};

SIMT_DEVICE bool is_aligned(const CollectiveArgs& args, const Pieces& pieces) {
  const std::uint64_t all = reinterpret_cast<std::uintptr_t>(args.in) |
                            reinterpret_cast<std::uintptr_t>(args.out) | pieces.longest |
                            pieces.total | pieces.in_stride | pieces.out_stride;
  return all % kWord == 0;
}

template <typename Element, bool kAligned>
SIMT_DEVICE void run_by(const CollectiveArgs& args, const Part& part) {
  Call<Element, kAligned> call(args, part);
  call.count(call.run());
}

/// Waits itself for earlier kernels: what it works out before takes no memory.
template <typename Element>
SIMT_DEVICE void run(const CollectiveArgs& args) {
  const Part part = part_of(args);
  const bool all_aligned = is_aligned(args, part.pieces);
  simt::grid_dependency_wait();
  if (part.pieces.longest == 0) return;
  if (all_aligned)
    run_by<Element, true>(args, part);
  else
    run_by<Element, false>(args, part);
}

}  // namespace polypath::lines
