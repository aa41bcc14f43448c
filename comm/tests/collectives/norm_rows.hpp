// Rows of calls that normalise what they sum, as programs make them, with a rank's memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "call_rows.hpp"
#include "norm_case.hpp"

namespace polypath::test {

struct PlannedNorm {
  NormCase what;
  std::vector<NormImage> images;  ///< by rank
};

inline PlannedNorm planned(Random& random, const NormCase& what) {
  return {what, norm_images(random, what)};
}

/// One rank's memory for a row of calls, on the GPU of the current context.
class NormRow {
 public:
  NormRow(const CudaDriver& driver, const std::vector<PlannedNorm>& calls, int rank)
      : rank_(static_cast<std::size_t>(rank)) {
    for (const PlannedNorm& call : calls)
      memory_.push_back(std::make_unique<DeviceBytes>(driver, call.images[rank_].before.size()));
    reset(calls);
  }
  [[nodiscard]] NormCall call(const std::vector<PlannedNorm>& calls, std::size_t i) const {
    const NormCase& what = calls[i].what;
    const NormImage& image = calls[i].images[rank_];
    const CUdeviceptr at = memory_[i]->address();
    return {what.type,
            what.rows,
            what.hidden,
            what.epsilon,
            at + image.in_at,
            what.has_residual ? at + image.residual_at : 0,
            at + image.residual_out_at,
            at + image.weight_at,
            at + image.out_at,
            what.to_float8 ? at + image.scale_at : 0};
  }
  void issue(Collectives& collectives, const std::vector<PlannedNorm>& calls, CUstream stream,
             NormRoute route = NormRoute::planned) const {
    for (std::size_t i = 0; i < calls.size(); ++i) collectives.run(call(calls, i), stream, route);
  }
  void reset(const std::vector<PlannedNorm>& calls) const {
    for (std::size_t i = 0; i < calls.size(); ++i) memory_[i]->write(calls[i].images[rank_].before);
  }
  void expect_done(const std::vector<PlannedNorm>& calls) const {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      NormImage expected = calls[i].images[rank_];
      const Bytes contents = memory_[i]->read(expected.before.size());
      // With an output of FP8 the input is not defined afterwards.
      if (calls[i].what.to_float8)
        std::copy_n(contents.begin() + static_cast<std::ptrdiff_t>(expected.in_at),
                    calls[i].what.bytes(),
                    expected.after.begin() + static_cast<std::ptrdiff_t>(expected.in_at));
      EXPECT_EQ(difference(expected, contents.data()), "")
          << "rank " << rank_ << ", call " << i << ": " << calls[i].what.text();
    }
  }

 private:
  std::size_t rank_;
  std::vector<std::unique_ptr<DeviceBytes>> memory_;
};

}  // namespace polypath::test
