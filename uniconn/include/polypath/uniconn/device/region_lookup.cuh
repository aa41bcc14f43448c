// Where memory of Memory is on the other ranks, as kernels over polypath's backend find it.
//
// The view of a communicator is read from the second-level cache after each acquire. So what one
// look needs is loaded at once, none of it by an address that another load gives.
#pragma once

#include "polypath/device/group.cuh"
#include "polypath/device/tile.cuh"
#include "polypath/device/wait.cuh"
#include "polypath/uniconn/device/polypath_view.hpp"

namespace polypath::uniconn::detail {

POLYPATH_DEVICE device::wait_context wait_context_of(const PolypathView* comm_view) {
  const device::wait_context* const from = &comm_view->wait_ctx;
  return {device::load(&from->abort_flag), device::load(&from->time_limit_ns),
          device::load(&from->status), device::load(&from->reports), device::load(&from->kernel)};
}
POLYPATH_DEVICE_NOINLINE void complain(const PolypathView* comm_view,
                                       device::wait_error::Reason reason,
                                       const device::wait_target& wrong) {
  const device::wait_context wait_ctx = wait_context_of(comm_view);
  device::report(wait_ctx, reason, wrong);
}

/// `ranks`: their number, of the view. False: there is none, and the host is told.
POLYPATH_DEVICE bool is_rank(const PolypathView* comm_view, int rank, int ranks) {
  if (static_cast<unsigned>(rank) < static_cast<unsigned>(ranks)) return true;
  complain(comm_view, device::wait_error::bad_rank,
           {device::wait_error::kNobody, static_cast<std::uint64_t>(ranks),
            static_cast<std::uint64_t>(static_cast<std::int64_t>(rank))});
  return false;
}

/// A number of a piece that there is not.
inline constexpr std::uint32_t kNoPiece = ~std::uint32_t{0};

POLYPATH_DEVICE bool is_within(std::uint64_t address, std::uint64_t bytes, std::uint64_t begin,
                               std::uint64_t size) {
  const std::uint64_t offset = address - begin;
  return offset < size && bytes <= size - offset;
}

/// The number of the piece that holds the range, from number `first` on. kNoPiece: there is none,
/// and the host is told. All threads of a group look at the same words, and few at a time: programs
/// seldom have that many pieces, and a call's registers are those of all that it calls.
POLYPATH_DEVICE_NOINLINE std::uint32_t piece_from(const PolypathView* comm_view,
                                                  std::uint32_t first, std::uint64_t address,
                                                  std::uint64_t bytes) {
  const std::uint64_t count = device::load(&comm_view->count);
  POLYPATH_NO_UNROLL
  for (std::uint32_t i = first; i < count; i += 2) {
    const std::uint64_t begin = device::load(&comm_view->pieces.begin[i]);
    const std::uint64_t size = device::load(&comm_view->pieces.bytes[i]);
    const std::uint64_t next_begin = device::load(&comm_view->pieces.begin[i + 1]);
    const std::uint64_t next_size = device::load(&comm_view->pieces.bytes[i + 1]);
    if (is_within(address, bytes, begin, size)) return i;
    if (is_within(address, bytes, next_begin, next_size)) return i + 1;
  }
  complain(comm_view, device::wait_error::bad_memory,
           {device::wait_error::kNobody, 0, 0, address, bytes});
  return kNoPiece;
}
static_assert(kMaxDevicePieces % 2 == 0);

/// Where `address` is on another rank, which is no matter of the piece's own begin.
template <typename Place>
POLYPATH_DEVICE Place* moved(Place* address, std::uint64_t shift) {
  return reinterpret_cast<Place*>(reinterpret_cast<std::uint64_t>(address) + shift);
}
template <typename Place>
POLYPATH_DEVICE Place* on_rank(const PolypathView* comm_view, std::uint32_t piece, Place* address,
                               int rank) {
  return moved(address, device::load(&comm_view->pieces.shift[rank][piece]));
}
template <typename Place>
POLYPATH_DEVICE device::pointer_list<Place, kMaxDeviceRanks> on_all(const PolypathView* comm_view,
                                                                    std::uint32_t piece,
                                                                    Place* address, int ranks) {
  device::pointer_list<Place, kMaxDeviceRanks> all;
  all.count = ranks;
  POLYPATH_UNROLL
  for (int r = 0; r < kMaxDeviceRanks; ++r)
    if (r < ranks) all.at[r] = on_rank(comm_view, piece, address, r);
  return all;
}

/// The first pieces of a view, as a warp or a thread of its own has them in its registers: those
/// that nearly all programs do with. What is loaded is under way when load() returns. All threads
/// of the team make the calls.
template <typename Team>
class region_lookup;

template <>
class region_lookup<device::this_warp> {
 public:
  static constexpr std::uint32_t kCount = device::kWarp;

  POLYPATH_DEVICE void load(const PolypathView* comm_view) {
    begin_ = device::load(&comm_view->pieces.begin[device::rank_in_warp()]);
    bytes_ = device::load(&comm_view->pieces.bytes[device::rank_in_warp()]);
  }
  POLYPATH_DEVICE void load_shifts(const PolypathView* comm_view, int to) {
    shift_ = device::load(&comm_view->pieces.shift[to][device::rank_in_warp()]);
  }
  /// kNoPiece: it is not among these.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t number_of(std::uint64_t address,
                                                        std::uint64_t bytes) const {
    const unsigned matches = device::warp_ballot(is_within(address, bytes, begin_, bytes_));
    return matches == 0 ? kNoPiece : device::countr_one(~matches);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t shift_of(std::uint32_t number) const {
    return device::warp_shuffle(shift_, number);
  }

 private:
  std::uint64_t begin_;
  std::uint64_t bytes_;
  std::uint64_t shift_;
};

template <>
class region_lookup<device::this_thread> {
 public:
  static constexpr std::uint32_t kCount = 4;

  POLYPATH_DEVICE void load(const PolypathView* comm_view) {
    POLYPATH_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i) {
      begin_[i] = device::load(&comm_view->pieces.begin[i]);
      bytes_[i] = device::load(&comm_view->pieces.bytes[i]);
    }
  }
  POLYPATH_DEVICE void load_shifts(const PolypathView* comm_view, int to) {
    POLYPATH_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i)
      shift_[i] = device::load(&comm_view->pieces.shift[to][i]);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t number_of(std::uint64_t address,
                                                        std::uint64_t bytes) const {
    std::uint32_t number = kNoPiece;
    POLYPATH_UNROLL
    for (std::uint32_t i = 0; i < kCount; ++i)
      if (is_within(address, bytes, begin_[i], bytes_[i])) number = i;
    return number;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t shift_of(std::uint32_t number) const {
    std::uint64_t shift = shift_[0];
    POLYPATH_UNROLL
    for (std::uint32_t i = 1; i < kCount; ++i)
      if (number == i) shift = shift_[i];
    return shift;
  }

 private:
  std::uint64_t begin_[kCount];
  std::uint64_t bytes_[kCount];
  std::uint64_t shift_[kCount];
};

/// A team looks for pieces; all its threads make the calls.
template <typename Team>
class Search {
 public:
  POLYPATH_DEVICE explicit Search(const PolypathView* comm_view) : view_(comm_view) {}

  /// What piece_of() needs is under way.
  POLYPATH_DEVICE void begin() { first_.load(view_); }
  /// ... and what ranks() and place_on() need, for any rank `to`.
  POLYPATH_DEVICE void begin(int to) {
    begin();
    first_.load_shifts(view_, to & (kMaxDeviceRanks - 1));
    ranks_ = device::load(&view_->size);
  }
  [[nodiscard]] POLYPATH_DEVICE int ranks() const { return ranks_; }
  /// The number of the piece that holds the range. kNoPiece: there is none, and the host is told.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t piece_of(const void* address,
                                                       std::uint64_t bytes) const {
    const auto at = reinterpret_cast<std::uint64_t>(address);
    const std::uint32_t number = first_.number_of(at, bytes);
    return number != kNoPiece ? number : piece_from(view_, Pieces::kCount, at, bytes);
  }
  /// Where the range is on the rank that begin() was told of. Null: it is in no piece, and the host
  /// is told.
  template <typename Place>
  [[nodiscard]] POLYPATH_DEVICE Place* place_on(int to, Place* address, std::uint64_t bytes) const {
    const std::uint32_t number = piece_of(address, bytes);
    if (number < Pieces::kCount) return moved(address, first_.shift_of(number));
    return number == kNoPiece ? nullptr : on_rank(view_, number, address, to);
  }

 private:
  using Pieces = region_lookup<Team>;

  const PolypathView* view_;
  int ranks_ = 0;
  Pieces first_;
};

static_assert((kMaxDeviceRanks & (kMaxDeviceRanks - 1)) == 0);
static_assert(kMaxDevicePieces >= device::kWarp);

}  // namespace polypath::uniconn::detail
