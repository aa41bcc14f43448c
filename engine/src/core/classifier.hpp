// Whether a transfer may be split: what its addresses and its stream are, by questions to the
// driver and to the imports. Nothing is issued, and nothing is changed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "core/copy_engine.hpp"
#include "core/counters.hpp"
#include "core/file_read.hpp"
#include "core/node_source.hpp"
#include "core/pointer_info.hpp"
#include "driver/resources.hpp"
#include "exec/transfer_state.hpp"
#include "plan/plan.hpp"

namespace polypath {

/// "[0x7f00, +64)".
std::string range_text(CUdeviceptr address, std::uint64_t bytes);
/// The same "of allocation [0x7f00, +4096)", or of "unknown". For the message of a failure, which
/// another one that it meets here must not replace: throws no DriverError.
std::string allocation_text(const CudaDriver& driver, CUdeviceptr address, std::uint64_t bytes);

/// A transfer between two memories of the node, before its stream was looked at.
struct ResolvedTransfer {
  Transfer transfer;
  Request request;
  PointerInfo dst;
  PointerInfo src;
  Access dst_access;
  Access src_access;
  /// The host's side is memory that CUDA does not know.
  bool is_pageable = false;
};

/// A transfer whose memories and stream allow it to be split.
struct SplittableTransfer {
  Transfer transfer;
  Request request;
  CallerStream caller;
  int caller_gpu = 0;
  unsigned long long dst_buffer = 0;
  unsigned long long src_buffer = 0;
  std::shared_ptr<ImportedMemory> dst_import;  ///< null for memory of this process
  std::shared_ptr<ImportedMemory> src_import;
  /// An end may be memory that has another address as well, which overlaps nothing.
  bool may_have_aliases = false;
  Access dst_access;
  Access src_access;
};

/// Copies of pageable memory with fewer bytes are left to the driver. Zeros: that is not known.
struct PageableLimits {
  std::uint64_t to_gpu = 0;
  std::uint64_t from_gpu = 0;
};

/// What the driver said of the memories of a transfer.
struct EndInfos {
  PointerInfo dst;
  PointerInfo src;
};

/// Thread-safe: it holds no state of its own.
class Classifier {
 public:
  /// All must outlive it. Transfers below `min_split_bytes` bytes are not looked into.
  Classifier(const NodeSource& source, Devices& devices, ImportedMemories& imports,
             SharedMappings& shared, std::uint64_t min_split_bytes);

  /// Between which memories it goes, or why it cannot be split. Throws InvalidArgument for what
  /// cannot be copied at all, DriverError.
  /// Receives in `infos` what was found out. Asks no more about copies below the limits.
  std::variant<ResolvedTransfer, NativeReason> ends_of(const Transfer& transfer, EndInfos& infos,
                                                       const PageableLimits& limits = {});
  /// The GPU that a file is read to, and the host memory nearest to it. `src` of the transfer is 0.
  /// Errors as above.
  std::variant<ResolvedTransfer, NativeReason> ends_of(const FileRead& read);
  /// The same transfer with its stream, or why it cannot be split. Throws DriverError.
  std::variant<SplittableTransfer, NativeReason> splittable(const ResolvedTransfer& ends);

  // What both ask:

  /// Throws InvalidArgument, which names the argument, for what is no memory, DriverError.
  PointerInfo checked_info(const char* argument, CUdeviceptr address, std::uint64_t bytes);
  /// The memory of the node that an address lies in, or nothing.
  std::optional<MemoryId> memory_of(CUdeviceptr address, const PointerInfo& info) const;
  /// Throws DriverError.
  CallerStream caller_of(CUstream stream) const;
  /// Which mappings other GPUs may be given access to.
  [[nodiscard]] SharedMappings& shared() const noexcept { return shared_; }

 private:
  /// Nothing when the range is not in one memory.
  std::optional<Access> access_to(const PointerInfo& info, CUdeviceptr address,
                                  std::uint64_t bytes) const;
  [[nodiscard]] const CudaDriver& driver() const noexcept { return *source_.driver; }

  const NodeSource& source_;
  Devices& devices_;
  ImportedMemories& imports_;
  SharedMappings& shared_;
  std::uint64_t never_split_below_;
};

}  // namespace polypath
