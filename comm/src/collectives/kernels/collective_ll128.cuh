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
// Everything else is as with cells (collective_ll.cuh): regions, halves, hops, the order of pushes,
// sums and results, the count of calls on the device, and why there is no deadlock. What differs:
// - The flag is the number of the call, in 64 bits. It does not come round, so nothing is cleared.
//   Lines have memory of their own, where bytes 120 to 127 of a line are never data.
// - A warp works together. It moves a row: 8 lines, of which each lane has 16 bytes in the first
//   four and in the last four. It has all of a row, or waits.
// - A lane loads and stores user memory by 16 bytes. Of 60 such words of a row, lane l has word l
//   and word 32 + l - l / 8. The eighth lane of a line has one alone, and sends half of it with
//   each of its flags. All ranks place the words so; lanes combine what they have.
// - Ranks push to their peers in different orders, and so do the warps of a rank. In one order, all
//   would first send to rank 0, whose port would hold up the others.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "collectives/kernels/call_meeting.cuh"
#include "collectives/kernels/collective_args.h"
#include "collectives/kernels/mutants.h"
#include "collectives/kernels/partial_words.cuh"
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

/// A word of user memory, and a lane's part of a row as it lies there; of the eighth lane of a line
/// the second word is nothing.
struct alignas(16) Word {
  std::uint64_t low;
  std::uint64_t high;
};
struct Words {
  Word first;
  Word second;
};

SIMT_DEVICE bool has_flag() { return simt::lane_index() % kLanes == kLanes - 1; }

/// As lines have it. Looks at what was loaded, so it waits for that.
SIMT_DEVICE Quad quad_of(const Words& words) {
  const Word& first = words.first;
  const Word& second = words.second;
  return {{first.low, first.high, has_flag() ? first.high : second.low, second.high}};
}

/// A row: where its data begin in a piece, where this lane's two words lie there, and where its
/// packets begin in a region. Bytes; lines serve buffers of less than 2 GiB (kMaxLineRegion).
struct Row {
  std::uint32_t begin;
  std::uint32_t first;
  std::uint32_t second;
  std::uint32_t packets;
};
SIMT_DEVICE Row row_of(std::uint32_t number) {
  const unsigned lane = simt::lane_index();
  const std::uint32_t begin = number * kLineRowData;
  return {begin, begin + lane * kWord, begin + (simt::kWarp + lane - lane / kLanes) * kWord,
          number * kLineRowBytes};
}

/// The pieces of a call (rank_roles.h), in 32 bits.
struct Shares {
  std::uint32_t longest;
  std::uint32_t total;
  std::uint32_t in_stride;
  std::uint32_t out_stride;
  std::uint32_t slice_stride;  ///< 0: pieces are no slices of one buffer
  std::uint32_t skip;

  SIMT_DEVICE explicit Shares(const Pieces& pieces)
      : longest(static_cast<std::uint32_t>(pieces.longest)),
        total(static_cast<std::uint32_t>(pieces.total)),
        in_stride(static_cast<std::uint32_t>(pieces.in_stride)),
        out_stride(static_cast<std::uint32_t>(pieces.out_stride)),
        slice_stride(pieces.sliced ? longest : 0),
        skip(pieces.skip) {}

  SIMT_DEVICE std::uint32_t index(std::uint32_t rank) const { return rank - (rank > skip ? 1 : 0); }
  /// Whether the piece that begins at `slice` of the buffer goes on at `place`.
  SIMT_DEVICE bool has(std::uint32_t slice, std::uint32_t place) const {
    return place < longest && slice + place < total;
  }
  SIMT_DEVICE std::uint32_t length(std::uint32_t slice) const {
    if (slice >= total) return 0;
    return total - slice < longest ? total - slice : longest;
  }
};

/// A piece of user memory. `kAligned`: addresses and lengths are multiples of 16 bytes.
template <bool kAligned>
class Piece {
 public:
  /// `slice`: where it begins in the buffer that it is a slice of.
  SIMT_DEVICE Piece(const Shares& shares, const unsigned char* begin, std::uint32_t slice)
      : shares_(shares), begin_(begin), slice_(slice) {}

  [[nodiscard]] SIMT_DEVICE bool is_at(const Piece& other) const { return begin_ == other.begin_; }
  [[nodiscard]] SIMT_DEVICE bool has(const Row& row) const {
    return shares_.has(slice_, row.begin);
  }

  /// A row, by all lanes of a warp; bytes after the end are 0.
  [[nodiscard]] SIMT_DEVICE Words load(const Row& row) const {
    return {load_word(row.first, true), load_word(row.second, !has_flag())};
  }
  SIMT_DEVICE void store(const Row& row, const Quad& quad) const {
    const bool is_last = has_flag();
    store_word(row.first, true, {quad.at[0], is_last ? quad.at[2] : quad.at[1]});
    store_word(row.second, !is_last, {quad.at[2], quad.at[3]});
  }

 private:
  [[nodiscard]] SIMT_DEVICE bool is_whole(std::uint32_t place) const {
    if (kAligned) return shares_.has(slice_, place);
    return reinterpret_cast<std::uintptr_t>(begin_) % kWord == 0 &&
           place + kWord <= shares_.length(slice_);
  }
  [[nodiscard]] SIMT_DEVICE Word load_word(std::uint32_t place, bool is_wanted) const {
    Word word{};
    if (is_wanted && is_whole(place)) {
      word = simt::load_streaming(reinterpret_cast<const Word*>(begin_ + place));
    } else if (!kAligned && is_wanted) {
      const std::uint32_t length = shares_.length(slice_);
      word = {load_partial_word(begin_, place, length),
              load_partial_word(begin_, place + 8, length)};
    }
    return word;
  }
  SIMT_DEVICE void store_word(std::uint32_t place, bool is_wanted, const Word& word) const {
    auto* const begin = const_cast<unsigned char*>(begin_);
    if (is_wanted && is_whole(place)) {
      simt::store_streaming(reinterpret_cast<Word*>(begin + place), word);
    } else if (!kAligned && is_wanted) {
      const std::uint32_t length = shares_.length(slice_);
      store_partial_word(begin, place, length, word.low);
      store_partial_word(begin, place + 8, length, word.high);
    }
  }

  const Shares& shares_;
  const unsigned char* begin_;
  std::uint32_t slice_;
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

/// The same quad, whose elements the compiler does not know: small ones would each have a register.
SIMT_DEVICE Quad packed(const Quad& quad) {
  return {{simt::opaque(quad.at[0]), simt::opaque(quad.at[1]), simt::opaque(quad.at[2]),
           simt::opaque(quad.at[3])}};
}

/// Combines the elements of a lane's quads, in the order in which they are added.
template <typename Operation>
class Combination {
 public:
  SIMT_DEVICE explicit Combination(const CollectiveArgs& args) : operation_(args) {}

  SIMT_DEVICE void begin(const Quad& quad) {
    Elements elements;
    memcpy(&elements, &quad, sizeof quad);
    Sums sums;
    POLYPATH_UNROLL
    for (int e = 0; e < kElements; ++e) sums.at[e] = operation_.widen(elements.at[e]);
    keep(sums);
  }
  SIMT_DEVICE void add(const Quad& quad) {
    Elements elements;
    memcpy(&elements, &quad, sizeof quad);
    Sums sums = kept();
    POLYPATH_UNROLL
    for (int e = 0; e < kElements; ++e)
      sums.at[e] = operation_.combine(sums.at[e], operation_.widen(elements.at[e]));
    keep(sums);
  }
  [[nodiscard]] SIMT_DEVICE Quad result() const {
    const Sums sums = kept();
    Elements elements;
    POLYPATH_UNROLL
    for (int e = 0; e < kElements; ++e) elements.at[e] = operation_.narrow(sums.at[e]);
    Quad quad;
    memcpy(&quad, &elements, sizeof quad);
    return quad;
  }

 private:
  using Element = typename Operation::Element;
  static constexpr int kElements = static_cast<int>(sizeof(Quad) / sizeof(Element));
  struct Elements {
    Element at[kElements];
  };
  struct Sums {
    typename Operation::Sum at[kElements];
  };
  static constexpr bool kIsPacked = sizeof(Sums) == sizeof(Quad);
  using Kept = std::conditional_t<kIsPacked, Quad, Sums>;

  SIMT_DEVICE void keep(const Sums& sums) {
    memcpy(&kept_, &sums, sizeof sums);
    if constexpr (kIsPacked) kept_ = packed(kept_);
  }
  SIMT_DEVICE Sums kept() const {
    Sums sums;
    memcpy(&sums, &kept_, sizeof sums);
    return sums;
  }

  Operation operation_;
  Kept kept_;
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

/// One call, as one thread sees it. All lanes of a warp go through it together. `kAtOnce`: sources
/// and peers whose rows a warp has in registers at once.
template <typename Element, bool kAligned, std::uint32_t kAtOnce>
class Call {
  using Memory = Piece<kAligned>;

 public:
  /// Takes no memory.
  SIMT_DEVICE Call(const CollectiveArgs& args, const Part& part)
      : args_(args),
        roles_(part.roles),
        shares_(part.pieces),
        layout_{args.shape},
        in_(static_cast<const unsigned char*>(args.in)),
        out_(static_cast<const unsigned char*>(args.out)),
        rank_(args.rank),
        others_(args.shape.ranks - 1),
        first_row_(simt::warp_index() * simt::grid_size() + simt::block_index()),
        row_step_(simt::grid_size() * (simt::block_size() / simt::kWarp)),
        turn_(others_ == 0 ? 0 : first_row_ % others_) {}

  SIMT_DEVICE void run() {
    if (has_mutant(Fault::call_counted_too_early)) count_own_share();
    const std::uint64_t number = simt::load_relaxed(calls()) / kCallParts;
    flag_ = has_mutant(Fault::flag_not_counted) ? 1 : number + 1;
    half_ = has_mutant(Fault::halves_not_alternated) ? 0 : static_cast<std::uint32_t>(number % 2);
    // The last warp has no rows in a small call, and no more than others in any.
    const bool meets =
        simt::block_index() == 0 && simt::warp_index() + 1 == simt::block_size() / simt::kWarp;
    const std::uint32_t meeting = meets ? begin_meeting(args_) : 0;
    push();
    simt::block_sync();  // all that need the count have read it
    if (!has_mutant(Fault::call_counted_too_early)) count_own_share();
    if (meets && !simt::warp_all(end_meeting(args_, meeting))) return;
    if (combine()) take();
  }

 private:
  SIMT_DEVICE std::uint64_t* calls() const {
    return reinterpret_cast<std::uint64_t*>(args_.counts + ScratchLayout::line_calls());
  }
  SIMT_DEVICE void count_own_share() const {
    if (simt::thread_index() != 0) return;
    const std::uint32_t blocks = simt::grid_size();
    const std::uint32_t rest = simt::block_index() == 0 ? kCallParts % blocks : 0;
    simt::red_add_relaxed(calls(), std::uint64_t{kCallParts / blocks + rest});
  }
  SIMT_DEVICE Memory in(std::uint32_t rank) const {
    const std::uint32_t index = shares_.index(rank);
    return {shares_, in_ + index * shares_.in_stride, index * shares_.slice_stride};
  }
  SIMT_DEVICE Memory out(std::uint32_t rank) const {
    const std::uint32_t index = shares_.index(rank);
    return {shares_, out_ + index * shares_.out_stride, index * shares_.slice_stride};
  }
  /// This lane's place in the first four lines of a row; in the others it is kWarp packets later.
  SIMT_DEVICE Packet* row_at(std::uint32_t receiver, std::uint32_t ring, std::uint32_t sender,
                             const Row& row) const {
    return reinterpret_cast<Packet*>(args_.lines[receiver] +
                                     layout_.region(half_, ring, receiver, sender) + row.packets) +
           simt::lane_index();
  }
  /// The i-th of the others, in the order in which this warp pushes to them.
  SIMT_DEVICE std::uint32_t peer(std::uint32_t i) const {
    std::uint32_t place = turn_ + i;
    if (place >= others_) place -= others_;
    const std::uint32_t rank = rank_ + 1 + place;
    return rank > others_ ? rank - others_ - 1 : rank;
  }

  SIMT_DEVICE void push_row(std::uint32_t to, std::uint32_t ring, const Row& row,
                            const Quad& quad) const {
    Packet* const at = row_at(to, ring, rank_, row);
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
  SIMT_DEVICE void push_row_to(std::uint32_t set, std::uint32_t ring, const Row& row,
                               const Quad& quad) const {
    POLYPATH_NO_UNROLL
    for (std::uint32_t i = 0; i < others_; ++i)
      if (in_set(set, peer(i))) push_row(peer(i), ring, row, quad);
  }

  SIMT_DEVICE void push() const {
    if (roles_.push == 0) return;
    POLYPATH_NO_UNROLL
    for (std::uint32_t number = first_row_;; number += row_step_) {
      const Row row = row_of(number);
      if (row.begin >= shares_.longest) return;
      if (shares_.in_stride == 0)
        push_row_to(roles_.push, roles_.ring, row, quad_of(in(0).load(row)));
      else
        push_pieces(row);
    }
  }
  /// Each peer gets its own piece: kAtOnce of them are loaded before the first is stored.
  SIMT_DEVICE void push_pieces(const Row& row) const {
    POLYPATH_NO_UNROLL
    for (std::uint32_t base = 0; base < others_; base += kAtOnce) {
      Words words[kAtOnce] = {};
      std::uint32_t to[kAtOnce];  // rank_: none
      POLYPATH_UNROLL
      for (std::uint32_t k = 0; k < kAtOnce; ++k) {
        to[k] = base + k < others_ ? peer(base + k) : rank_;
        if (!in_set(roles_.push, to[k]) || !in(to[k]).has(row)) to[k] = rank_;
        if (to[k] != rank_) words[k] = in(to[k]).load(row);
      }
      POLYPATH_UNROLL
      for (std::uint32_t k = 0; k < kAtOnce; ++k)
        if (to[k] != rank_) push_row(to[k], roles_.ring, row, quad_of(words[k]));
    }
  }

  /// Waits for a row from those of `senders` that are `base` to base + kAtOnce - 1. The same for
  /// all lanes.
  SIMT_DEVICE bool wait_for_row(std::uint32_t senders, std::uint32_t base, std::uint32_t ring,
                                const Row& row, Quad (&quads)[kAtOnce]) const {
    std::uint32_t missing = 0;
    std::uint64_t seen = 0;
    bool has_looked = false;
    const Packet* const first = row_at(rank_, ring, rank_ == 0 ? 1 : 0, row);
    const auto ready = [&] {
      bool all = true;
      POLYPATH_UNROLL
      for (std::uint32_t k = 0; k < kAtOnce; ++k) {
        const Packet* const at = same_row_of(first, simt::opaque(base + k));
        if (in_set(senders, base + k)) look_at_row(quads[k], at, has_looked);
      }
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
  /// From the place in the region of the first of the others.
  SIMT_DEVICE const Packet* same_row_of(const Packet* first, std::uint32_t sender) const {
    const std::uint64_t place = sender - (sender > rank_ ? 1 : 0);
    return reinterpret_cast<const Packet*>(reinterpret_cast<const unsigned char*>(first) +
                                           place * layout_.shape.line_bytes);
  }
  SIMT_DEVICE void look_at_row(Quad& quad, const Packet* at, bool has_looked) const {
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
    if (!roles_.owner) return true;
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
    const std::uint32_t sources = roles_.combine | (roles_.own_part ? 1U << rank_ : 0);
    POLYPATH_NO_UNROLL
    for (std::uint32_t number = first_row_;; number += row_step_) {
      const Row row = row_of(number);
      if (!in(rank_).has(row)) return true;
      Combination<Operation> combination(args_);
      Words own{};
      if (roles_.own_part) own = in(simt::opaque(rank_)).load(row);
      POLYPATH_NO_UNROLL
      for (std::uint32_t base = 0; base <= others_; base += kAtOnce) {
        Quad quads[kAtOnce] = {};
        if (!wait_for_row(roles_.combine, base, 0, row, quads)) return false;
        POLYPATH_UNROLL
        for (std::uint32_t k = 0; k < kAtOnce; ++k)
          if (base + k == rank_) quads[k] = quad_of(own);
        if (has_mutant(Fault::own_part_first) && rank_ < kAtOnce && base == 0) {
          const Quad first = quads[0];
          quads[0] = quads[rank_];
          quads[rank_] = first;
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
      const Row again = row_of(simt::opaque(number));  // for the registers while it waits
      push_row_to(roles_.results, 1, again, result);
      if (roles_.owner_keeps) out(simt::opaque(rank_)).store(again, result);
    }
  }

  SIMT_DEVICE void take() const {
    if ((roles_.take | roles_.keep) == 0) return;
    POLYPATH_NO_UNROLL
    for (std::uint32_t number = first_row_;; number += row_step_) {
      const Row row = row_of(number);
      if (row.begin >= shares_.longest) return;
      POLYPATH_NO_UNROLL
      for (std::uint32_t base = 0; base <= others_; base += kAtOnce) {
        if (roles_.keep != 0) keep_row(base, row);
        if (!take_row(base, row)) return;
      }
    }
  }
  SIMT_DEVICE void keep_row(std::uint32_t base, const Row& row) const {
    POLYPATH_NO_UNROLL
    for (std::uint32_t p = base; p < base + kAtOnce && p <= others_; ++p)
      if (in_set(roles_.keep, p) && in(p).has(row) && !in(p).is_at(out(p)))
        out(p).store(row, quad_of(in(p).load(row)));
  }
  SIMT_DEVICE bool take_row(std::uint32_t base, const Row& row) const {
    std::uint32_t senders = 0;
    POLYPATH_UNROLL
    for (std::uint32_t k = 0; k < kAtOnce; ++k)
      if (in_set(roles_.take, base + k) && out(base + k).has(row)) senders |= 1U << (base + k);
    Quad quads[kAtOnce] = {};
    if (!wait_for_row(senders, base, 1, row, quads)) return false;
    POLYPATH_UNROLL
    for (std::uint32_t k = 0; k < kAtOnce; ++k)
      if (in_set(senders, base + k)) out(base + k).store(row, quads[k]);
    return true;
  }

  const CollectiveArgs& args_;
  const RankRoles& roles_;
  const Shares shares_;
  const LineLayout layout_;
  const unsigned char* const in_;
  const unsigned char* const out_;
  const std::uint32_t rank_;
  const std::uint32_t others_;  ///< ranks
  const std::uint32_t first_row_;
  const std::uint32_t row_step_;
  const std::uint32_t turn_;  ///< of this warp: the peer with which it begins
  std::uint32_t half_ = 0;
  std::uint64_t flag_ = 0;
};

SIMT_DEVICE bool is_aligned(const CollectiveArgs& args, const Pieces& pieces) {
  const std::uint64_t all = reinterpret_cast<std::uintptr_t>(args.in) |
                            reinterpret_cast<std::uintptr_t>(args.out) | pieces.longest |
                            pieces.total | pieces.in_stride | pieces.out_stride;
  return all % kWord == 0;
}

template <typename Element, bool kAligned, std::uint32_t kAtOnce>
SIMT_DEVICE void run_by(const CollectiveArgs& args, const Part& part) {
  Call<Element, kAligned, kAtOnce> call(args, part);
  simt::grid_dependency_wait();
  call.run();
}

/// Waits itself for earlier kernels: what it works out before takes no memory.
template <typename Element>
SIMT_DEVICE void run(const CollectiveArgs& args) {
  const Part part = part_of(args);
  if (part.pieces.longest == 0) return simt::grid_dependency_wait();
  if (!is_aligned(args, part.pieces))
    run_by<Element, false, 4>(args, part);
  else if (args.shape.ranks == 2)
    run_by<Element, true, 2>(args, part);
  else
    run_by<Element, true, 4>(args, part);
}

}  // namespace polypath::lines
