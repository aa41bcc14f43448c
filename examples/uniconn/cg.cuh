// The steps of conjugate gradients in kernels that communicate themselves, over polypath's backend.
// Blocks send the part of the direction that they have made as soon as they have. The block that
// multiplies the last rows of a sum's block sums that. The last block to end a step sums up what all have, and
// in PureDevice does so over all ranks, or waits for them. No block waits for another one of its
// GPU.
//
// The arithmetic is that of cg.cu, in the same order.
#pragma once

#include "cg_faults.hpp"
#include "cg_kernel.h"
#include "polypath/uniconn/device/polypath.cuh"

namespace uniconn_example {

namespace device = polypath::device;
using polypath::has_mutant;

// ---- Parts --------------------------------------------------------------------------------------

/// A range of rows.
struct CgRange {
  std::uint64_t first;
  std::uint64_t behind;
};

/// As many for each thread block, multiples of kCgStride.
POLYPATH_DEVICE CgRange own_rows(const CgLaunch& launch) {
  const std::uint64_t steps = (launch.rows + kCgStride - 1) / kCgStride;
  const std::uint64_t first = steps * device::block_index() / device::grid_size() * kCgStride;
  const std::uint64_t behind =
      steps * (device::block_index() + 1) / device::grid_size() * kCgStride;
  return {first, behind < launch.rows ? behind : launch.rows};
}
/// The rows of block `block` of a sum.
POLYPATH_DEVICE CgRange rows_of_block(const CgLaunch& launch, std::uint64_t block) {
  const std::uint64_t behind = (block + 1) * cg::kBlockRows;
  return {block * cg::kBlockRows, behind < launch.rows ? behind : launch.rows};
}

/// Rows of a block that one thread has.
inline constexpr unsigned kCgRounds = cg::kBlockRows / cg::kThreads;

/// Calls `body(round, row)` for those of them that there are.
template <typename Body>
POLYPATH_DEVICE void each_row(const CgRange& rows, const Body& body) {
  POLYPATH_UNROLL
  for (unsigned round = 0; round < kCgRounds; ++round) {
    const std::uint64_t row = rows.first + device::thread_index() + round * cg::kThreads;
    if (row < rows.behind) body(round, row);
  }
}

/// Adds to a count what this block has done. True when that is all: then it finds what other blocks
/// stored before they came here, and the count is 0 again.
POLYPATH_DEVICE bool completes(std::uint32_t* count, std::uint32_t done, std::uint32_t all) {
  bool is_last = false;
  device::block_sync();
  if (device::thread_index() == 0) {
    const std::uint32_t before = has_mutant(CgFault::ends_without_order)
                                     ? device::atomic_add_relaxed(count, done)
                                     : device::atomic_add_acq_rel(count, done);
    is_last = has_mutant(CgFault::first_for_last) ? before == 0 : before + done == all;
    if (is_last && !has_mutant(CgFault::count_not_reset)) device::store(count, 0U);
  }
  return device::block_any(is_last);
}

// ---- Sums ---------------------------------------------------------------------------------------

/// The sum of a block's threads, in the order of cg.cu.
POLYPATH_DEVICE double sum_of_threads(double value, double* of_thread) {
  const unsigned own = device::thread_index();
  of_thread[own] = value;
  for (unsigned half = cg::kThreads / 2; half > 0; half /= 2) {
    device::block_sync();
    if (own < half) of_thread[own] += of_thread[own + half];
  }
  device::block_sync();
  const double sum = of_thread[0];
  device::block_sync();
  return sum;
}

/// `sum`: of a thread's rows. That of all threads, rounded, is a part.
POLYPATH_DEVICE void store_part(const CgLaunch& launch, std::uint64_t block, double bound,
                                double sum, double* of_thread) {
  sum = sum_of_threads(sum, of_thread);
  if (device::thread_index() == 0)
    device::store(launch.parts + block, cg::rounded(sum, cg::magnet(bound)));
}

/// The sums of kCgTogether rows over the lanes of a warp, in the order of cg.cu; a lane has that of
/// row lane / (kWarp / kCgTogether). While there are several, each half goes on with half of them.
POLYPATH_DEVICE double sum_of_lanes(double (&of_row)[kCgTogether]) {
  unsigned half = cg::kWarp / 2;
  POLYPATH_UNROLL
  for (unsigned rows = kCgTogether / 2; rows > 0; rows /= 2, half /= 2) {
    const bool is_upper = (device::lane_index() & half) != 0 && !has_mutant(CgFault::other_halves);
    POLYPATH_UNROLL
    for (unsigned i = 0; i < rows; ++i) {
      const double kept = is_upper ? of_row[i + rows] : of_row[i];
      const double sent = is_upper ? of_row[i] : of_row[i + rows];
      of_row[i] = kept + device::warp_shuffle_xor(sent, half);
    }
  }
  for (; half > 0; half /= 2) of_row[0] += device::warp_shuffle_xor(of_row[0], half);
  return of_row[0];
}

// ---- Steps --------------------------------------------------------------------------------------

/// No more than cg::kBlockRows rows. A warp has kCgTogether at a time, of each the entries of two
/// rounds: all are under way together, past the first-level cache, which is the vector's.
/// `places`: of shared memory, where rows begin.
POLYPATH_DEVICE void multiply_rows(const CgLaunch& launch, const CgRange& rows,
                                   std::uint32_t* places) {
  const std::uint64_t first = device::load_constant(launch.offsets + rows.first);
  const auto count = static_cast<std::uint32_t>(rows.behind - rows.first);
  for (std::uint32_t row = device::thread_index(); row <= count; row += cg::kThreads)
    places[row] = static_cast<std::uint32_t>(
        device::load_constant(launch.offsets + rows.first + row) - first);
  device::block_sync();
  const std::int32_t* const columns = launch.columns + first;
  const double* const values = launch.values + first;
  const unsigned lane = device::lane_index();
  for (std::uint32_t row = device::warp_index() * kCgTogether; row < count; row += kCgStride) {
    std::uint32_t begin[kCgTogether + 1];
    std::uint32_t most = 0;
    begin[0] = places[row];
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kCgTogether; ++i) {
      begin[i + 1] = places[row + i < count ? row + i + 1 : count];
      const std::uint32_t entries = begin[i + 1] - begin[i];
      most = entries > most ? entries : most;
    }
    constexpr unsigned kLoads = 2 * kCgTogether;
    double sums[kCgTogether]{};
    const unsigned rounds = has_mutant(CgFault::second_round_twice) ? 1 : 2;
    for (std::uint32_t at = 0; at < most; at += rounds * cg::kWarp) {
      const auto entry = [&](unsigned i) {
        return begin[i % kCgTogether] + at + i / kCgTogether * cg::kWarp + lane;
      };
      const auto is_there = [&](unsigned i) { return entry(i) < begin[i % kCgTogether + 1]; };
      std::int32_t column[kLoads]{};
      double value[kLoads]{};
      double of_vector[kLoads]{};
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kLoads; ++i) {
        if (!is_there(i)) continue;
        column[i] = device::load_streaming(columns + entry(i));
        value[i] = device::load_streaming(values + entry(i));
      }
      device::warp_sync();  // else the compiler waits for a column before it loads the next value
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kLoads; ++i)
        if (is_there(i)) of_vector[i] = device::load(launch.vector + column[i]);
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kLoads; ++i)
        if (is_there(i)) sums[i % kCgTogether] += value[i] * of_vector[i];
    }
    const double sum = sum_of_lanes(sums);
    constexpr unsigned kLanes = cg::kWarp / kCgTogether;
    const std::uint32_t of_lane = row + lane / kLanes;
    if (lane % kLanes == 0 && of_lane < count)
      device::store(launch.product + rows.first + of_lane, sum);
  }
}

/// The thread block that completes a block of rows sums it.
POLYPATH_DEVICE void cg_multiply(const CgLaunch& launch, std::uint32_t* places, double* of_thread) {
  const CgRange own = own_rows(launch);
  for (std::uint64_t first = own.first; first < own.behind;) {
    const std::uint64_t block = first / cg::kBlockRows;
    const CgRange all = rows_of_block(launch, block);
    const CgRange part{first, own.behind < all.behind ? own.behind : all.behind};
    multiply_rows(launch, part, places);
    first = part.behind;
    if (!completes(launch.multiplied + block, static_cast<std::uint32_t>(part.behind - part.first),
                   static_cast<std::uint32_t>(all.behind - all.first)))
      continue;
    double direction[kCgRounds]{};
    double product[kCgRounds]{};
    each_row(all, [&](unsigned round, std::uint64_t row) {
      direction[round] = device::load(launch.own + row);
      product[round] = device::load(launch.product + row);
    });
    double sum = 0;
    each_row(all, [&](unsigned round, std::uint64_t) { sum += direction[round] * product[round]; });
    store_part(launch, block, device::load(launch.squared) * launch.norm, sum, of_thread);
  }
}

POLYPATH_DEVICE void cg_update(const CgLaunch& launch, std::uint64_t blocks, double* of_thread) {
  const double squared = device::load(launch.squared);
  const double length = cg::quotient(squared, device::load(launch.along));
  for (std::uint64_t block = device::block_index(); block < blocks; block += device::grid_size()) {
    const CgRange rows = rows_of_block(launch, block);
    double solution[kCgRounds]{};
    double direction[kCgRounds]{};
    double residual[kCgRounds]{};
    double product[kCgRounds]{};
    each_row(rows, [&](unsigned round, std::uint64_t row) {
      solution[round] = device::load(launch.solution + row);
      direction[round] = device::load(launch.own + row);
      residual[round] = device::load(launch.residual + row);
      product[round] = device::load(launch.product + row);
    });
    double sum = 0;
    each_row(rows, [&](unsigned round, std::uint64_t row) {
      device::store(launch.solution + row, solution[round] + length * direction[round]);
      const double left = residual[round] - length * product[round];
      device::store(launch.residual + row, left);
      sum += left * left;
    });
    store_part(launch, block, squared, sum, of_thread);
  }
}

POLYPATH_DEVICE void cg_turn(const CgLaunch& launch) {
  namespace uc = polypath::uniconn;
  using It = uc::Coordinator<uc::PolypathBackend>;
  auto* const comm = static_cast<uc::Communicator<uc::PolypathBackend>*>(launch.comm);
  const double part = cg::quotient(device::load(launch.next_squared), device::load(launch.squared));
  const CgRange own = own_rows(launch);
  const auto send = [&] {
    if (own.first == own.behind) return;
    const int rank = It::Rank(comm);
    const int ranks = has_mutant(CgFault::sent_to_one) ? 2 : It::Size(comm);
    double* const sent = launch.own + own.first;
    for (int step = 1; step < ranks; ++step)
      It::Post<uc::ThreadGroup::BLOCK>(sent, sent, own.behind - own.first, nullptr, 0,
                                       (rank + step) % It::Size(comm), comm);
  };
  if (has_mutant(CgFault::sent_before_stored)) send();
  for (CgRange rows = own; rows.first < rows.behind; rows.first += cg::kBlockRows) {
    double residual[kCgRounds]{};
    double direction[kCgRounds]{};
    each_row(rows, [&](unsigned round, std::uint64_t row) {
      residual[round] = device::load(launch.residual + row);
      direction[round] = device::load(launch.own + row);
    });
    each_row(rows, [&](unsigned round, std::uint64_t row) {
      device::store(launch.own + row, residual[round] + part * direction[round]);
    });
  }
  if (!has_mutant(CgFault::sent_before_stored)) send();
}

POLYPATH_DEVICE void cg_step_and_send(const CgLaunch& launch) {
  namespace uc = polypath::uniconn;
  using It = uc::Coordinator<uc::PolypathBackend>;
  constexpr auto kBlock = uc::ThreadGroup::BLOCK;
  auto* const comm = static_cast<uc::Communicator<uc::PolypathBackend>*>(launch.comm);
  double* const of_thread = device::dynamic_shared<double>();
  auto* const places = reinterpret_cast<std::uint32_t*>(of_thread + cg::kThreads);

  const std::uint64_t blocks = (launch.rows + cg::kBlockRows - 1) / cg::kBlockRows;
  switch (launch.step) {
    case CgStep::multiply: cg_multiply(launch, places, of_thread); break;
    case CgStep::update: cg_update(launch, blocks, of_thread); break;
    case CgStep::turn: cg_turn(launch); break;
  }
  if (!completes(launch.ended, 1, device::grid_size())) return;
  if (launch.step == CgStep::turn) {
    // After it every rank has the direction of all.
    if (launch.waits != 0 && !has_mutant(CgFault::no_last_barrier)) It::Barrier<kBlock>(comm);
    return;
  }
  double sum = 0;
  for (std::uint64_t block = device::thread_index(); block < blocks; block += cg::kThreads)
    sum += device::load(launch.parts + block);
  sum = sum_of_threads(sum, of_thread);  // exact, in any order
  double* const word = launch.step == CgStep::multiply ? launch.along : launch.next_squared;
  if (device::thread_index() == 0) device::store(word, sum);
  if (launch.waits != 0 && !has_mutant(CgFault::own_sum))
    It::AllReduce<kBlock, uc::ReductionOperator::SUM>(word, 1, comm);
}

}  // namespace uniconn_example
