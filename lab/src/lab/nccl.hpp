// NCCL as the baseline of collectives.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "collectives/collective_types.h"
#include "comm/nccl_functions.hpp"

namespace polypath {

/// The library. Thread-safe.
class Nccl {
 public:
  /// As load_nccl().
  static std::shared_ptr<const Nccl> load(const std::string& library, std::string* why);

  /// "2.28.9".
  [[nodiscard]] std::string version() const;
  /// Throws Error.
  [[nodiscard]] NcclId unique_id() const;

 private:
  friend class NcclCommunicator;
  explicit Nccl(std::shared_ptr<const NcclFunctions> functions)
      : functions_(std::move(functions)) {}
  std::shared_ptr<const NcclFunctions> functions_;
};

/// One rank of an NCCL communicator, on the GPU whose context is current when it is created and
/// used. One thread at a time.
class NcclCommunicator {
 public:
  /// By all ranks at once, with the same `id`. Throws Error.
  NcclCommunicator(std::shared_ptr<const Nccl> nccl, const NcclId& id, int rank, int size);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// `count` as in NCCL: of allreduce, reduce and broadcast all elements; of reduce_scatter those
  /// that a rank receives; of all_gather those that it sends; of all_to_all those for each rank.
  /// Throws Error.
  void run(CollectiveOp op, CUdeviceptr send, CUdeviceptr recv, std::uint64_t count, DataType type,
           Operator reduction, int root, CUstream stream);

 private:
  std::shared_ptr<const Nccl> nccl_;
  int size_;
  void* handle_ = nullptr;
};

}  // namespace polypath
