#include "collectives/comm_spread.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.hpp"
#include "base/units.hpp"
#include "collectives/call_match.hpp"
#include "comm/stream_waits.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"

namespace polypath {
namespace {

/// Slices are multiples of it, so that kernels move whole words.
constexpr std::uint64_t kSpreadGranule = 4 * kKiB;
/// A rank's slice of a piece: 4 MiB take a host link longer than the piece takes to be gathered
/// (docs/spread.md).
constexpr std::uint64_t kMinSpreadSlice = 256 * kKiB;
constexpr std::uint64_t kMaxSpreadSlice = 4 * kMiB;
/// Filling and emptying the pipeline takes the time of a piece each.
constexpr std::uint64_t kSpreadPieces = 8;
/// One call must not fill a stream (exec/route_resources.cpp).
constexpr std::uint64_t kMaxSpreadPieces = 128;
/// The root copies a piece over all paths: it has room for their shares.
constexpr std::uint64_t kRootPiece = 64 * kMiB;

struct MemoryOf {
  bool is_device = false;
  bool is_pageable = false;
  int gpu = -1;
};

MemoryOf memory_of(const CudaDriver& driver, CUdeviceptr address) {
  CUmemorytype type{};
  int gpu = -1;
  std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::array<void*, 2> values{&type, &gpu};
  POLYPATH_CHECK(
      driver, pointer_get_attributes(attributes.size(), attributes.data(), values.data(), address));
  return {type == CU_MEMORYTYPE_DEVICE, type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_HOST,
          gpu};
}

SpreadTrees trees_of(const CollectivePlanInputs& known) {
  const int near = known.node.gpus[static_cast<std::size_t>(known.gpus.front())].numa;
  return make_spread_trees(known.node, MemoryId::host(near), known.gpus, 0);
}

}  // namespace

CommSpread::CommSpread(Collectives& collectives, CopyEngine& engine)
    : collectives_(collectives),
      engine_(engine),
      trees_(trees_of(collectives.basis())),
      feed_(comm().driver(), comm().context()),
      fork_(comm().driver(), comm().context(), CU_EVENT_DISABLE_TIMING),
      fed_(comm().driver(), comm().context(), CU_EVENT_DISABLE_TIMING) {}

void CommSpread::run(const SpreadCall& call, CUstream stream) {
  comm().check();
  const int size = comm().size();
  if (call.root != kSharedSource && (call.root < 0 || call.root >= size))
    throw InvalidArgument(
        fmt::format("rank {}: root {} is none of {} ranks", comm().rank(), call.root, size));
  if (call.bytes > std::numeric_limits<std::uint64_t>::max() / 2)
    throw InvalidArgument(fmt::format("rank {}: bytes {} are too many", comm().rank(), call.bytes));
  if (call.bytes == 0) return;
  try {
    ContextGuard guard(comm().driver());
    guard.use(comm().context());  // of a default stream
    collectives_.require_stream(stream);
    require_buffers(call);
    issue(call, stream);
  } catch (const std::exception& error) {
    if (size > 1)
      comm().abort(fmt::format("rank {} could not issue its part of a spread: {}", comm().rank(),
                               error.what()));
    throw;
  }
  ++counts_.calls;
}

void CommSpread::require_buffers(const SpreadCall& call) {
  const int rank = comm().rank();
  const bool has_src = call.root == kSharedSource || call.root == rank;
  const auto require = [&](bool is_right, const char* what) {
    if (!is_right) throw InvalidArgument(fmt::format("rank {}: {}", rank, what));
  };
  require(call.recv != 0, "recv is null");
  require(!has_src || call.src != 0, "src is null");
  const MemoryOf recv = memory_of(comm().driver(), call.recv);
  require(recv.is_device && recv.gpu == comm().gpu(), "recv is no memory of the rank's GPU");
  is_pageable_ = false;
  if (!has_src) return;
  const MemoryOf src = memory_of(comm().driver(), call.src);
  is_pageable_ = src.is_pageable;
  require(call.root != kSharedSource || !src.is_device, "src that all ranks share is a GPU's");
  require(call.src == call.recv || call.src + call.bytes <= call.recv ||
              call.recv + call.bytes <= call.src,
          "src and recv overlap");
}

std::uint64_t CommSpread::piece_bytes(const SpreadCall& call) const {
  const auto ranks = static_cast<std::uint64_t>(comm().size());
  const auto at_least = [&](std::uint64_t piece) {
    return std::max(piece, call.bytes / kMaxSpreadPieces / kSpreadGranule * kSpreadGranule);
  };
  if (call.root != kSharedSource) return at_least(kRootPiece);
  if (ranks == 1 || plan_spread(collectives_.basis().node, trees_, call.bytes, 0).native())
    return 0;
  const std::uint64_t slice =
      std::clamp(call.bytes / ranks / kSpreadPieces / kSpreadGranule * kSpreadGranule,
                 kMinSpreadSlice, kMaxSpreadSlice);
  const std::uint64_t piece = at_least(slice * ranks) / ranks / kSpreadGranule * kSpreadGranule;
  return piece * ranks;
}

std::uint32_t CommSpread::hash_of(const SpreadCall& call) const {
  return hash_with(hash_with(0x5b3ead, call.bytes),
                   static_cast<std::uint64_t>(static_cast<unsigned>(call.root))) |
         1U;
}

void CommSpread::issue(const SpreadCall& call, CUstream stream) {
  const CudaDriver& driver = comm().driver();
  const std::uint64_t piece = piece_bytes(call);
  if (comm().size() == 1) return engine_.copy_async({call.recv, call.src, call.bytes, stream});
  if (piece == 0) {
    ++counts_.native;
    return copy(call.recv, call.src, call.bytes, stream);
  }
  Streams streams{feed_.get(), stream};
  // What is recorded has no copies on a stream that other calls use meanwhile.
  if (is_captured(driver, stream)) streams.feed = stream;
  if (!streams.is_one()) {
    POLYPATH_CHECK(driver, event_record(fork_.get(), stream));
    POLYPATH_CHECK(driver, stream_wait_event(streams.feed, fork_.get(), 0));
  }
  if (call.root == kSharedSource)
    issue_shared(call, piece, streams);
  else
    issue_from_root(call, piece, streams);
}

void CommSpread::copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes, CUstream stream) {
  if (bytes == 0 || to == from) return;
  // Other ranks copy over the links that would help; CPU threads copy what is pageable.
  if (is_pageable_) return engine_.copy_async({to, from, bytes, stream});
  POLYPATH_CHECK(comm().driver(), memcpy_async(to, from, bytes, stream));
}

void CommSpread::pass_on(const Streams& streams) {
  if (streams.is_one()) return;
  POLYPATH_CHECK(comm().driver(), event_record(fed_.get(), streams.feed));
  POLYPATH_CHECK(comm().driver(), stream_wait_event(streams.caller, fed_.get(), 0));
}

void CommSpread::collect(const SpreadCall& call, CollectiveOp op, CUdeviceptr send,
                         CUdeviceptr recv, std::uint64_t bytes, const Streams& streams) {
  CollectiveCall part;
  part.op = op;
  part.type = DataType::uint8;
  part.root = std::max(call.root, 0);
  part.count = bytes;
  part.send = send;
  part.recv = recv;
  part.within = hash_of(call);
  collectives_.run(part, streams.caller);
  ++counts_.pieces;
}

void CommSpread::issue_shared(const SpreadCall& call, std::uint64_t piece, const Streams& streams) {
  const auto ranks = static_cast<std::uint64_t>(comm().size());
  const auto rank = static_cast<std::uint64_t>(comm().rank());
  const std::uint64_t even = call.bytes / (ranks * kSpreadGranule) * (ranks * kSpreadGranule);
  // Each rank copies the few bytes that no slices are made of.
  copy(call.recv + even, call.src + even, call.bytes - even, streams.feed);
  for (std::uint64_t at = 0; at < even; at += piece) {
    const std::uint64_t slice = std::min(piece, even - at) / ranks;
    const CUdeviceptr own = call.recv + at + rank * slice;
    copy(own, call.src + at + rank * slice, slice, streams.feed);
    pass_on(streams);
    collect(call, CollectiveOp::all_gather, own, call.recv + at, slice, streams);
  }
}

void CommSpread::issue_from_root(const SpreadCall& call, std::uint64_t piece,
                                 const Streams& streams) {
  const bool is_root = call.root == comm().rank();
  // Memory of the root's GPU is sent from where it is.
  bool is_there = false;
  if (is_root) {
    const MemoryOf src = memory_of(comm().driver(), call.src);
    is_there = src.is_device && src.gpu == comm().gpu();
  }
  for (std::uint64_t at = 0; at < call.bytes; at += piece) {
    const std::uint64_t bytes = std::min(piece, call.bytes - at);
    CUdeviceptr send = 0;
    if (is_root) {
      send = (is_there ? call.src : call.recv) + at;
      if (!is_there) {
        engine_.copy_async({call.recv + at, call.src + at, bytes, streams.feed});
        pass_on(streams);
      }
    }
    collect(call, CollectiveOp::broadcast, send, call.recv + at, bytes, streams);
  }
}

}  // namespace polypath
