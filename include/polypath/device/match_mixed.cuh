// Matching without a source wildcard by the whole GPU: one batch of many sources, split into
// partitions (split.cuh), each of which a warp matches.
#pragma once

#include <cstdint>

#include "polypath/device/match_partitioned.cuh"
#include "polypath/device/split.cuh"

namespace polypath::device {
namespace detail {

/// A partition, as MessageWindow sees it.
class NumberedBatch {
 public:
  POLYPATH_DEVICE NumberedBatch(const split_view& view, std::uint32_t partition)
      : view_(view),
        messages_(view.split[0] + load(view.begins[0] + partition)),
        receives_(view.split[1] + load(view.begins[1] + partition)),
        message_count_(size_of(0, partition)),
        receive_count_(size_of(1, partition)) {}

  [[nodiscard]] POLYPATH_DEVICE std::uint32_t message_count() const { return message_count_; }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t receive_count() const { return receive_count_; }
  [[nodiscard]] POLYPATH_DEVICE envelope message(std::uint32_t i) const {
    return load(&messages_[i].what);
  }
  [[nodiscard]] POLYPATH_DEVICE envelope receive(std::uint32_t i) const {
    return load(&receives_[i].what);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t match(std::uint32_t receive) const {
    return load(view_.batch.message_of_receive + load(&receives_[receive].number));
  }
  POLYPATH_DEVICE void set_none(std::uint32_t receive) const {
    store(view_.batch.message_of_receive + load(&receives_[receive].number), kNone);
  }
  POLYPATH_DEVICE void set_match(std::uint32_t receive, std::uint32_t message) const {
    const std::uint32_t of_receive = load(&receives_[receive].number);
    const std::uint32_t of_message = load(&messages_[message].number);
    store(view_.batch.message_of_receive + of_receive, of_message);
    if (view_.batch.receive_of_message != nullptr)
      store(view_.batch.receive_of_message + of_message, of_receive);
  }
  /// By a warp: the messages have no receive yet.
  POLYPATH_DEVICE void begin() const {
    if (view_.batch.receive_of_message == nullptr) return;
    for (std::uint32_t i = rank_in_warp(); i < message_count_; i += kWarp)
      store(view_.batch.receive_of_message + load(&messages_[i].number), kNone);
    warp_sync();
  }

 private:
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t size_of(unsigned side,
                                                      std::uint32_t partition) const {
    const std::uint32_t* const begins = split_view::of_side(view_.begins, side) + partition;
    return load(begins + 1) - load(begins);
  }

  const split_view& view_;
  const numbered* messages_;
  const numbered* receives_;
  std::uint32_t message_count_;
  std::uint32_t receive_count_;
};

/// Whether one warp would take too long. In bad order each receive looks at all messages.
POLYPATH_DEVICE bool is_long(const NumberedBatch& batch) {
  constexpr std::uint64_t kMost = 256;  // 1024 of each
  constexpr std::uint32_t kTogether = MessageWindow::kMessages;
  const std::uint64_t windows = (batch.message_count() + kTogether - 1) / kTogether;
  return windows * ((batch.receive_count() + kTogether - 1) / kTogether) > kMost;
}

}  // namespace detail

/// Each warp takes partitions; long ones are noted and left out.
POLYPATH_DEVICE void match_partitions(const split_view& view, match_sums& sums) {
  const unsigned warps = block_size() / kWarp;
  const unsigned own = block_index() * warps + warp_index();
  std::uint32_t pairs = 0;
  for (std::uint32_t partition = own; partition < 1U << view.bits;
       partition += grid_size() * warps) {
    const detail::NumberedBatch batch(view, partition);
    if (detail::is_long(batch)) {
      if (rank_in_warp() == 0) store_relaxed<device_scope>(&view.words->is_long, 1U);
      continue;
    }
    batch.begin();
    pairs += detail::match_windows(Warp{}, batch);
  }
  pairs = detail::sum_of(Block{}, sums, pairs);
  if (thread_index() == 0 && pairs > 0) fetch_add<device_scope>(&view.words->matches, pairs);
}

/// One phase by all threads of a grid; they are partitioned_workspace::kOfSplit. `words`: of the
/// block, in shared memory.
POLYPATH_DEVICE void run_split_phase(const split_view& view, unsigned phase, std::uint32_t* words) {
  const split_memory memory(words);
  const detail::WholeGrid grid;
  const unsigned pass = phase < 4 ? 0 : 1;
  if (phase == 0 && grid.rank() == 0) detail::begin_words(view.words, 0);
  if (phase >= 1 && phase <= 6 && pass >= view.passes()) return;
  if (phase == 1 || phase == 4) count_pieces<partitioned>(view, memory, pass);
  if (phase == 2 || phase == 5) sum_pieces(view, pass);
  if (phase == 3 || phase == 6) move_pieces(view, memory, pass);
  if (phase == 7) find_begins(view);
  if (phase < 8) return;
  if (load(&view.words->bad) == kNothingBad)
    match_partitions(view, *reinterpret_cast<match_sums*>(words));
  else
    detail::match_nothing(view.batch, grid.rank(), grid.size());
}

}  // namespace polypath::device
