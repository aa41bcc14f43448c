// The number of ways to place queens, by blocks that balance an irregular tree of work by a queue:
// a thread that pops a board pushes what can follow, or, further down, or when the queue is full,
// counts by itself. Device code for GPUs (queens_kernel.cu) and, in polypath's tests, for the host.
#pragma once

#include "polypath/device/queue.cuh"
#include "queens_run.h"

namespace messaging_example {

namespace device = polypath::device;

POLYPATH_DEVICE unsigned ones(std::uint32_t bits) {
  unsigned count = 0;
  for (; bits != 0; bits &= bits - 1) ++count;
  return count;
}
POLYPATH_DEVICE std::uint32_t free_of(const Board& board, std::uint32_t size) {
  return ((1U << size) - 1) & ~(board.columns | board.left | board.right);
}
POLYPATH_DEVICE Board with_queen(const Board& board, std::uint32_t at) {
  return {board.columns | at, (board.left | at) << 1, (board.right | at) >> 1};
}

/// Depth first, without recursion.
POLYPATH_DEVICE_NOINLINE std::uint64_t solutions_of(const Board& begin, std::uint32_t size) {
  constexpr unsigned kMaxRows = 20;
  Board boards[kMaxRows + 1];
  std::uint32_t frees[kMaxRows + 1];
  const unsigned first = ones(begin.columns);
  if (first == size) return 1;
  std::uint64_t solutions = 0;
  unsigned row = first;
  boards[row] = begin;
  frees[row] = free_of(begin, size);
  for (;;) {
    if (frees[row] == 0) {
      if (row == first) return solutions;
      --row;
      continue;
    }
    const std::uint32_t at = frees[row] & (~frees[row] + 1);
    frees[row] &= frees[row] - 1;
    if (row + 1 == size) {
      ++solutions;
      continue;
    }
    boards[row + 1] = with_queen(boards[row], at);
    frees[row + 1] = free_of(boards[row + 1], size);
    ++row;
  }
}

POLYPATH_DEVICE void queens(const QueensRun& run) {
  const device::this_thread self{};
  const device::queue<Board> queue(run.view);
  std::uint64_t solutions = 0;
  std::uint64_t boards = 0;
  if (device::block_index() == 0 && device::thread_index() == 0) {
    device::fetch_add<device::device_scope>(run.pending, std::uint64_t{1});
    queue.push(self, Board{0, 0, 0});
  }
  Board board{};
  while (queue.pop(self, board) == device::status::done) {
    ++boards;
    if (ones(board.columns) >= run.shared_rows) {
      solutions += solutions_of(board, run.size);
    } else {
      for (std::uint32_t free = free_of(board, run.size); free != 0; free &= free - 1) {
        const Board next = with_queen(board, free & (~free + 1));
        device::fetch_add<device::device_scope>(run.pending, std::uint64_t{1});
        if (queue.try_push(self, next) == device::status::done) continue;
        solutions += solutions_of(next, run.size);  // it is full: others have enough to do
        device::atomic_add_acq_rel(run.pending, ~std::uint64_t{0});
      }
    }
    // After its pushes: a block that finds nothing pending knows that there are no other boards.
    if (device::atomic_add_acq_rel(run.pending, ~std::uint64_t{0}) == 1) queue.close();
  }
  device::fetch_add<device::device_scope>(run.solutions, solutions);
  device::fetch_add<device::device_scope>(run.boards, boards);
}

}  // namespace messaging_example
