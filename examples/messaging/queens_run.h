// What the kernel of queens.cuh is told. C++17.
#pragma once

#include <cstdint>

#include "polypath/device/queue_view.hpp"

namespace messaging_example {

/// A board whose first rows have their queens: bits say which columns and diagonals are taken.
struct Board {
  std::uint32_t columns;
  std::uint32_t left;
  std::uint32_t right;
};

struct QueensRun {
  polypath::device::queue_view view;
  std::uint32_t size;  ///< of the board: 4 to 20
  std::uint32_t
      shared_rows;  ///< number of rows that are placed by way of the queue, others by one thread
  std::uint64_t* pending;  ///< boards that are in the queue or worked on; 0 at first
  std::uint64_t* solutions;
  std::uint64_t* boards;  ///< that went through the queue
};

inline constexpr std::uint32_t kQueensThreads = 128;

}  // namespace messaging_example
