// Splits messages and receives of many sources into partitions, by the whole GPU, in order: what
// was first of a source stays first. A radix sort of one pass, or of two above 256 partitions, in
// three phases each, that a kernel each runs (or one, with a barrier of the grid between them):
//
//   count_pieces   how many elements of each digit a piece has (block_size() * kOfThread elements)
//   sum_pieces     where each piece's elements of each digit begin, within the digit
//   move_pieces    puts them there
//
// and behind the last pass find_begins. All threads of a grid call each, with the same arguments;
// blocks have one dimension and up to 512 threads.
#pragma once

#include <cstdint>

#include "polypath/device/match_checks.cuh"
#include "polypath/device/matcher_memory.cuh"
#include "polypath/device/planted.hpp"
#include "polypath/device/platform.cuh"
#include "polypath/device/split_view.hpp"

namespace polypath::device {

/// Defects of splitting (planted.hpp).
enum class SplitFault {
  none,
  unstable_in_warp,       ///< elements of one digit in one warp are put in another order
  unstable_in_block,      ///< warps in another order
  unstable_among_pieces,  ///< pieces in another order
  counted_too_early       ///< behind the split: before all blocks are done
};

/// Shared memory of a block: so many words for each of its warps.
class split_memory {
 public:
  static constexpr unsigned kWarpWords = 2 * split_view::kDigits;
  POLYPATH_DEVICE explicit split_memory(std::uint32_t* words) : words_(words) {}
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t* counts(unsigned warp) const {
    return words_ + warp * kWarpWords;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t* begins() const {
    return words_ + split_view::kDigits;
  }

 private:
  std::uint32_t* words_;
};

namespace detail {

/// Of one pass over one side.
class SplitPass {
 public:
  POLYPATH_DEVICE SplitPass(const split_view& view, unsigned side, unsigned pass)
      : envelopes_(view.from(side)),
        from_(pass == 0 ? nullptr : split_view::of_side(view.half_way, side)),
        to_(pass + 1 == view.passes() ? split_view::of_side(view.split, side)
                                      : split_view::of_side(view.half_way, side)),
        words_(split_view::of_side(view.pieces, side)),
        count_(view.count(side)),
        pieces_(split_view::pieces_of(count_, block_size())),
        bits_(view.bits) {
    const unsigned low = view.passes() == 1 ? bits_ : bits_ / 2;
    shift_ = pass == 0 ? 0 : low;
    width_ = pass == 0 ? low : bits_ - low;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t pieces() const { return pieces_; }
  [[nodiscard]] POLYPATH_DEVICE unsigned digits() const { return 1U << width_; }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t count() const { return count_; }

  [[nodiscard]] POLYPATH_DEVICE numbered get(std::uint32_t index) const {
    if (from_ != nullptr) return load(from_ + index);
    return {load(envelopes_ + index), index, 0};
  }
  [[nodiscard]] POLYPATH_DEVICE envelope get_envelope(std::uint32_t index) const {
    return from_ != nullptr ? load(&from_[index].what) : load(envelopes_ + index);
  }
  POLYPATH_DEVICE void put(std::uint32_t index, const numbered& element) const {
    store(to_ + index, numbered{element.what, element.number, 0});
  }
  [[nodiscard]] POLYPATH_DEVICE unsigned digit_of(const envelope& of) const {
    return split_view::partition_of(of, bits_) >> shift_ & (digits() - 1);
  }
  /// Of a digit: a word for each piece.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t* row(unsigned digit) const {
    return words_ + std::size_t{digit} * pieces_;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t* total(unsigned digit) const {
    return words_ + std::size_t{split_view::kDigits} * pieces_ + digit;
  }

 private:
  const envelope* envelopes_;
  const numbered* from_;  ///< null in the first pass
  numbered* to_;
  std::uint32_t* words_;
  std::uint32_t count_;
  std::uint32_t pieces_;
  std::uint32_t bits_;
  unsigned shift_;
  unsigned width_;
};

/// Calls `work(pass, piece)` for this block's pieces of both sides.
template <typename Work>
POLYPATH_DEVICE void for_each_piece(const split_view& view, unsigned pass, const Work& work) {
  const std::uint32_t of_messages = split_view::pieces_of(view.count(0), block_size());
  const std::uint32_t all = of_messages + split_view::pieces_of(view.count(1), block_size());
  for (std::uint32_t at = block_index(); at < all; at += grid_size()) {
    const unsigned side = at < of_messages ? 0 : 1;
    work(SplitPass(view, side, pass), side, side == 0 ? at : at - of_messages);
  }
}

}  // namespace detail

/// Looks also, in the first pass, for what must not be matched in `Order`.
template <typename Order>
POLYPATH_DEVICE void count_pieces(const split_view& view, const split_memory& memory,
                                  unsigned pass) {
  std::uint32_t* const counts = memory.counts(0);
  detail::for_each_piece(
      view, pass, [&](const detail::SplitPass& of, unsigned side, unsigned piece) {
        for (unsigned d = thread_index(); d < of.digits(); d += block_size()) counts[d] = 0;
        block_sync();
        const std::uint32_t first = piece * block_size() * split_view::kOfThread + thread_index();
        envelope found[split_view::kOfThread];
        POLYPATH_UNROLL
        for (unsigned i = 0; i < split_view::kOfThread; ++i) {
          const std::uint32_t index = first + i * block_size();
          found[i] = index < of.count() ? of.get_envelope(index) : envelope{};
        }
        POLYPATH_UNROLL
        for (unsigned i = 0; i < split_view::kOfThread; ++i) {
          const std::uint32_t index = first + i * block_size();
          if (index >= of.count()) continue;
          in_shared::add(&counts[of.digit_of(found[i])], 1);
          if (pass > 0) continue;
          const match_status status = side == 0 ? detail::status_of_message(found[i])
                                                : detail::status_of_receive(Order{}, found[i]);
          if (status != match_status::done)
            detail::note_bad(&view.words->bad, side != 0, index, status);
        }
        block_sync();
        for (unsigned d = thread_index(); d < of.digits(); d += block_size())
          store(of.row(d) + piece, counts[d]);
        block_sync();
      });
}

/// Each warp takes rows: of a digit, a word for each piece.
POLYPATH_DEVICE void sum_pieces(const split_view& view, unsigned pass) {
  constexpr unsigned kTogether = 4;  // loads of a thread
  const unsigned warps = block_size() / kWarp;
  const unsigned digits = detail::SplitPass(view, 0, pass).digits();
  for (unsigned row = block_index() * warps + warp_index(); row < 2 * digits;
       row += grid_size() * warps) {
    const detail::SplitPass side(view, row / digits, pass);
    std::uint32_t* const words = side.row(row % digits);
    std::uint32_t before = 0;
    for (std::uint32_t at = 0; at < side.pieces(); at += kTogether * kWarp) {
      std::uint32_t index[kTogether];
      std::uint32_t own[kTogether];
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kTogether; ++i) {
        const std::uint32_t place = at + i * kWarp + rank_in_warp();
        index[i] = planted(SplitFault::unstable_among_pieces) ? side.pieces() - 1 - place : place;
        own[i] = index[i] < side.pieces() ? load(words + index[i]) : 0;
      }
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kTogether; ++i) {
        const std::uint32_t up_to_me = detail::sum_up_to_me(own[i]);
        if (index[i] < side.pieces()) store(words + index[i], before + up_to_me - own[i]);
        before += warp_shuffle(up_to_me, kWarp - 1);
      }
    }
    if (rank_in_warp() == 0) store(side.total(row % digits), before);
  }
}

POLYPATH_DEVICE void move_pieces(const split_view& view, const split_memory& memory,
                                 unsigned pass) {
  constexpr unsigned kItems = split_view::kOfThread;
  const unsigned warps = block_size() / kWarp;
  const unsigned lane = rank_in_warp();
  std::uint32_t* const counts = memory.counts(warp_index());
  detail::for_each_piece(view, pass, [&](const detail::SplitPass& of, unsigned, unsigned piece) {
    const std::uint32_t first = (piece * warps + warp_index()) * kWarp * kItems + lane;
    numbered elements[kItems];
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i)
      elements[i] = first + i * kWarp < of.count() ? of.get(first + i * kWarp) : numbered{};
    for (unsigned d = lane; d < of.digits(); d += kWarp) counts[d] = 0;
    if (warp_index() == 0) {
      std::uint32_t before = 0;
      for (unsigned d = lane; d - lane < of.digits(); d += kWarp) {
        const std::uint32_t own = d < of.digits() ? load(of.total(d)) : 0;
        const std::uint32_t up_to_me = detail::sum_up_to_me(own);
        if (d < of.digits()) memory.begins()[d] = before + up_to_me - own;
        before += warp_shuffle(up_to_me, kWarp - 1);
      }
    }
    warp_sync();
    // The place of each among its warp's elements of that digit.
    std::uint32_t places[kItems];
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i) {
      const bool is_there = first + i * kWarp < of.count();
      const unsigned digit = of.digit_of(elements[i].what);
      unsigned alike = warp_ballot(is_there);
      POLYPATH_UNROLL
      for (unsigned bit = 0; bit < split_view::kDigitBits; ++bit) {
        const bool is_set = (digit >> bit & 1) != 0;
        const unsigned all = warp_ballot(is_set);
        alike &= is_set ? all : ~all;
      }
      const unsigned lower = (1U << lane) - 1;
      const unsigned ahead = alike & (planted(SplitFault::unstable_in_warp) ? ~lower << 1 : lower);
      places[i] = is_there ? counts[digit] + count_of_ones(ahead) : 0;
      warp_sync();
      if (is_there && (alike & lower) == 0) counts[digit] += count_of_ones(alike);
      warp_sync();
    }
    block_sync();
    for (unsigned d = thread_index(); d < of.digits(); d += block_size()) {
      std::uint32_t begin = memory.begins()[d] + load(of.row(d) + piece);
      for (unsigned w = 0; w < warps; ++w) {
        const unsigned warp = planted(SplitFault::unstable_in_block) ? warps - 1 - w : w;
        const std::uint32_t own = memory.counts(warp)[d];
        memory.counts(warp)[d] = begin;
        begin += own;
      }
    }
    block_sync();
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kItems; ++i)
      if (first + i * kWarp < of.count())
        of.put(counts[of.digit_of(elements[i].what)] + places[i], elements[i]);
    block_sync();  // the next piece begins anew
  });
}

/// Behind the last pass.
POLYPATH_DEVICE void find_begins(const split_view& view) {
  const std::uint32_t words = (1U << view.bits) + 1;
  const std::uint32_t all = grid_size() * block_size();
  for (std::uint32_t at = block_index() * block_size() + thread_index(); at < 2 * words;
       at += all) {
    const unsigned side = at / words;
    const std::uint32_t partition = at % words;
    std::uint32_t low = 0;
    std::uint32_t high = view.count(side);
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      const bool is_before =
          split_view::partition_of(load(&split_view::of_side(view.split, side)[middle].what),
                                   view.bits) < partition;
      low = is_before ? middle + 1 : low;
      high = is_before ? high : middle;
    }
    store(split_view::of_side(view.begins, side) + partition, low);
  }
}

}  // namespace polypath::device
