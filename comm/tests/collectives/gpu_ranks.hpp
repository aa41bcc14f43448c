// The ranks of one process, through the driver alone: memory, streams and the collectives' kernels,
// for programs that try these without communicators. Several ranks may share a GPU. Their kernels
// wait for each other, so their blocks must fit on it together.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/kernels/kernels.hpp"
#include "comm/wait_error.hpp"
#include "driver/check.hpp"

namespace polypath::test {

class GpuRank {
 public:
  GpuRank(const CudaDriver& driver, std::uint32_t rank, std::uint32_t gpu);

  std::uint32_t rank() const { return rank_; }
  CUstream stream() const { return stream_; }
  const wait_error& status() const { return *status_; }

  /// Makes its context the calling thread's.
  void use() const;
  CUdeviceptr alloc(std::uint64_t bytes);
  void launch(KernelFamily family, const UnevenArgs& args, KernelForm form, std::uint32_t blocks);
  /// The kernel that sums rows and normalises them, or normalises alone.
  void launch_norm(bool is_fused, const NormArgs& args, std::uint32_t blocks);
  void synchronize() const;

 private:
  friend class GpuRanks;

  void load_kernels();
  void launch_function(const char* name, void* args, std::uint32_t blocks);

  const CudaDriver& driver_;
  std::uint32_t rank_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::map<std::string, CUfunction> functions_;
  wait_error* status_ = nullptr;
  std::uint32_t* abort_word_ = nullptr;
  std::uint32_t* reports_ = nullptr;
};

class GpuRanks {
 public:
  /// Rank R is on GPU R modulo `gpus`. GPUs must be able to address each other's memory. Memory of
  /// `relays` lies on the GPUs after those, where there are any.
  GpuRanks(const CudaDriver& driver, const ScratchShape& shape, std::uint32_t gpus,
           std::uint32_t relays = 0);

  std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  GpuRank& operator[](std::uint32_t rank) { return *ranks_[rank]; }
  const ScratchShape& shape() const { return shape_; }

  /// Completes `args` with what the rank knows; of a call over relays with their memory.
  void complete(CollectiveArgs& args, CUdeviceptr in, CUdeviceptr out,
                bool is_relayed = false) const;
  std::uint32_t relays() const { return static_cast<std::uint32_t>(relays_.size()); }

  /// Calls `run` once a rank, each in a thread of its own with that GPU's context.
  void on_all(const std::function<void(GpuRank&)>& run);

  /// The errors of the ranks that timed out; empty: none did.
  std::string failures() const;

 private:
  ScratchShape shape_;
  std::vector<std::unique_ptr<GpuRank>> ranks_;
  std::vector<CUdeviceptr> scratch_;
  std::vector<CUdeviceptr> lines_;
  std::vector<CUdeviceptr> relays_;  // memory on them
};

/// How many ranks there are, and on how many GPUs.
struct RankCounts {
  std::uint32_t ranks = 0;  ///< 0: one for each GPU, up to kMaxRanks
  std::uint32_t gpus = 0;   ///< 0: all that there are, and at most one for each rank

  bool share_gpus() const { return ranks > gpus; }
  /// How many blocks a rank's kernel may have, so that those of all ranks run at the same time.
  std::uint32_t max_blocks(const CudaDriver& driver) const;
};

/// `asked` with its zeros filled in. Throws std::runtime_error for more than there are.
RankCounts counted(const CudaDriver& driver, RankCounts asked);

}  // namespace polypath::test
