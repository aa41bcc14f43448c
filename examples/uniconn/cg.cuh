// The steps of conjugate gradients in kernels that communicate themselves, over polypath's backend.
// Blocks send the part of the direction that they have made as soon as they have. The last block to
// end a step sums up what all have, and in PureDevice does so over all ranks, or waits for them. No
// block waits for another one of its GPU.
//
// The arithmetic is that of cg.cu, in the same order.
#pragma once

#include "cg_kernel.h"
#include "polypath/uniconn/device/polypath.cuh"

namespace uniconn_example {

namespace device = polypath::device;

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

/// What `term` gives for each row of a block, by thread; its sum, rounded, is a part.
template <typename Term>
POLYPATH_DEVICE void sum_of_rows(const CgLaunch& its, std::uint64_t block, double bound,
                                 double* of_thread, const Term& term) {
  double sum = 0;
  for (unsigned at = device::thread_index(); at < cg::kBlockRows; at += cg::kThreads) {
    const std::uint64_t row = block * cg::kBlockRows + at;
    if (row < its.rows) sum += term(row, at);
  }
  sum = sum_of_threads(sum, of_thread);
  if (device::thread_index() == 0)
    device::store(its.parts + block, cg::rounded(sum, cg::magnet(bound)));
}

POLYPATH_DEVICE void cg_multiply_rows(const CgLaunch& its, std::uint64_t block, double* of_row,
                                      double* of_thread) {
  for (unsigned at = device::warp_index(); at < cg::kBlockRows; at += cg::kThreads / cg::kWarp) {
    const std::uint64_t row = block * cg::kBlockRows + at;
    double sum = 0;
    if (row < its.rows) {
      const std::uint64_t end = device::load(its.offsets + row + 1);
      for (std::uint64_t entry = device::load(its.offsets + row) + device::lane_index();
           entry < end; entry += cg::kWarp)
        sum += device::load(its.values + entry) *
               device::load(its.vector + device::load(its.columns + entry));
      for (unsigned half = cg::kWarp / 2; half > 0; half /= 2)
        sum += device::warp_shuffle_xor(sum, half);
    }
    if (device::lane_index() == 0) of_row[at] = sum;
  }
  device::block_sync();
  sum_of_rows(its, block, device::load(its.squared) * its.norm, of_thread,
              [&](std::uint64_t row, unsigned at) {
                device::store(its.product + row, of_row[at]);
                return device::load(its.own + row) * of_row[at];
              });
}

POLYPATH_DEVICE void cg_update_rows(const CgLaunch& its, std::uint64_t block, double* of_thread) {
  const double squared = device::load(its.squared);
  const double length = cg::quotient(squared, device::load(its.along));
  sum_of_rows(its, block, squared, of_thread, [&](std::uint64_t row, unsigned) {
    const double before = device::load(its.solution + row);
    device::store(its.solution + row, before + length * device::load(its.own + row));
    const double left = device::load(its.residual + row) - length * device::load(its.product + row);
    device::store(its.residual + row, left);
    return left * left;
  });
}

POLYPATH_DEVICE void cg_turn_rows(const CgLaunch& its, std::uint64_t block) {
  namespace uc = polypath::uniconn;
  using It = uc::Coordinator<uc::PolypathBackend>;
  auto* const comm = static_cast<uc::Communicator<uc::PolypathBackend>*>(its.comm);
  const double part = cg::quotient(device::load(its.next_squared), device::load(its.squared));
  const std::uint64_t first = block * cg::kBlockRows;
  const std::uint64_t left = its.rows - first;
  const std::uint64_t count = left < cg::kBlockRows ? left : std::uint64_t{cg::kBlockRows};
  double* const own = its.own + first;
  for (std::uint64_t at = device::thread_index(); at < count; at += cg::kThreads)
    device::store(own + at,
                  device::load(its.residual + first + at) + part * device::load(own + at));
  const int rank = It::Rank(comm);
  const int ranks = It::Size(comm);
  for (int step = 1; step < ranks; ++step)
    It::Post<uc::ThreadGroup::BLOCK>(own, own, count, nullptr, 0, (rank + step) % ranks, comm);
}

/// Whether this block is the last to come here: then it finds what all others have stored.
POLYPATH_DEVICE bool ends_last(std::uint32_t* ended) {
  bool is_last = false;
  device::block_sync();
  if (device::thread_index() == 0) {
    device::fence_sys();
    is_last = device::atomic_add_acq_rel(ended, std::uint32_t{1}) + 1 == device::grid_size();
    if (is_last) device::store(ended, 0U);
  }
  return device::block_any(is_last);
}

POLYPATH_DEVICE void cg_step_and_send(const CgLaunch& its) {
  namespace uc = polypath::uniconn;
  using It = uc::Coordinator<uc::PolypathBackend>;
  constexpr auto kBlock = uc::ThreadGroup::BLOCK;
  auto* const comm = static_cast<uc::Communicator<uc::PolypathBackend>*>(its.comm);
  double* const of_row = device::dynamic_shared<double>();
  double* const of_thread = of_row + cg::kBlockRows;

  const std::uint64_t blocks = (its.rows + cg::kBlockRows - 1) / cg::kBlockRows;
  for (std::uint64_t block = device::block_index(); block < blocks; block += device::grid_size()) {
    switch (its.step) {
      case CgStep::multiply: cg_multiply_rows(its, block, of_row, of_thread); break;
      case CgStep::update: cg_update_rows(its, block, of_thread); break;
      case CgStep::turn: cg_turn_rows(its, block); break;
    }
  }
  if (!ends_last(its.ended)) return;
  if (its.step == CgStep::turn) {
    // Behind it every rank has the direction of all.
    if (its.waits != 0) It::Barrier<kBlock>(comm);
    return;
  }
  double sum = 0;
  for (std::uint64_t block = device::thread_index(); block < blocks; block += cg::kThreads)
    sum += device::load(its.parts + block);
  sum = sum_of_threads(sum, of_thread);  // exact, in any order
  double* const word = its.step == CgStep::multiply ? its.along : its.next_squared;
  if (device::thread_index() == 0) device::store(word, sum);
  if (its.waits != 0) It::AllReduce<kBlock, uc::ReductionOperator::SUM>(word, 1, comm);
}

}  // namespace uniconn_example
