// Rows of random calls, as programs make them: what each rank's memory holds before, and must hold
// afterwards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collective_case.hpp"
#include "collectives/collectives.hpp"

namespace polypath::test {

/// Memory of the current context.
class DeviceBytes {
 public:
  DeviceBytes(const CudaDriver& driver, std::uint64_t bytes);
  ~DeviceBytes();
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }
  void write(const Bytes& bytes) const;
  [[nodiscard]] Bytes read(std::size_t bytes) const;

 private:
  const CudaDriver& driver_;
  CUdeviceptr address_ = 0;
};

/// A call with what every rank gives and must get.
struct PlannedCall {
  CollectiveCase what;
  std::vector<Image> images;  ///< by rank
};

/// Bytes of the larger one of a rank's buffers, both inclusive.
struct ByteRange {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};

/// At random; the same for the same state of `random`, on any rank. Kernels that wait for 16
/// bytes at a time are slow on the host: sizes between those that fit a few blocks and those that
/// go by channels are for GPUs.
PlannedCall planned_call(Random& random, int ranks, const ByteRange& bytes,
                         const std::vector<std::vector<std::uint32_t>>& nodes = {});

/// The call of `rank` on memory that its image was written to.
CollectiveCall call_on(const PlannedCall& call, int rank, CUdeviceptr memory);

/// One rank's memory for a row of calls, on the GPU of the current context.
class CallRow {
 public:
  CallRow(const CudaDriver& driver, const std::vector<PlannedCall>& calls, int rank);
  [[nodiscard]] CollectiveCall call(const std::vector<PlannedCall>& calls, std::size_t i) const;
  /// Compares every byte, guards too. What differs in the first call that differs; empty: nothing.
  [[nodiscard]] std::string difference_of(const std::vector<PlannedCall>& calls) const;
  /// expect_done() of all calls; what differs is a failure of the running test.
  void expect_done(const std::vector<PlannedCall>& calls) const;
  /// As they were before.
  void reset(const std::vector<PlannedCall>& calls) const;

 private:
  [[nodiscard]] std::string difference_of(const std::vector<PlannedCall>& calls,
                                          std::size_t i) const;

  int rank_;
  std::vector<std::unique_ptr<DeviceBytes>> memory_;
};

}  // namespace polypath::test
