#include "core/classifier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "driver/check.hpp"

namespace polypath {

namespace {

/// Whether the range goes on in the next allocation.
bool passes_end(const PointerInfo& info, CUdeviceptr address, std::uint64_t bytes) noexcept {
  return info.bytes != 0 && bytes > info.bytes - (address - info.start);
}

/// Memory of another process that does not say on which GPU it lies.
bool is_hidden(const PointerInfo& info) noexcept {
  return info.kind == PointerInfo::Kind::device && info.gpu < 0;
}

}  // namespace

std::string range_text(CUdeviceptr address, std::uint64_t bytes) {
  return fmt::format("[{:#x}, +{})", address, bytes);
}

std::string allocation_text(const CudaDriver& driver, CUdeviceptr address, std::uint64_t bytes) {
  std::string allocation = "unknown";
  try {
    const PointerInfo info = inspect(driver, address);
    if (info.bytes != 0) allocation = range_text(info.start, info.bytes);
  } catch (const DriverError&) {
    // As well as unknown.
  }
  return fmt::format("{} of allocation {}", range_text(address, bytes), allocation);
}

Classifier::Classifier(const NodeSource& source, Devices& devices, ImportedMemories& imports,
                       SharedMappings& shared, std::uint64_t min_split_bytes)
    : source_(source),
      devices_(devices),
      imports_(imports),
      shared_(shared),
      never_split_below_(min_split_bytes) {}

PointerInfo Classifier::checked_info(const char* argument, CUdeviceptr address,
                                     std::uint64_t bytes) {
  if (address == 0) throw InvalidArgument(fmt::format("{} is null", argument));
  const PointerInfo info = inspect(driver(), imports_, address);
  if (info.kind == PointerInfo::Kind::unknown) {
    if (!is_readable(address, bytes))
      throw InvalidArgument(
          fmt::format("{} {} is no memory of this process: out of range, or freed", argument,
                      range_text(address, bytes)));
    return info;
  }
  const std::uint64_t offset = address - info.start;
  if (info.bytes != 0 && bytes > info.bytes - offset &&
      inspect(driver(), address + bytes - 1).kind == PointerInfo::Kind::unknown)
    throw InvalidArgument(fmt::format("{} {} passes the end of its allocation {}", argument,
                                      range_text(address, bytes),
                                      range_text(info.start, info.bytes)));
  return info;
}

std::optional<MemoryId> Classifier::memory_of(CUdeviceptr address, const PointerInfo& info) const {
  if (info.kind == PointerInfo::Kind::device) return MemoryId::gpu(info.gpu);
  const auto& hosts = source_.node.hosts;
  if (hosts.empty()) return std::nullopt;
  if (hosts.size() == 1) return MemoryId::host(0);
  const int domain = numa_domain_of(address);
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (hosts[i].numa == domain) return MemoryId::host(static_cast<int>(i));
  return MemoryId::host(0);
}

CallerStream Classifier::caller_of(CUstream stream) const {
  CallerStream caller;
  caller.stream = stream;
  if (is_special_stream(stream)) {
    POLYPATH_CHECK(driver(), ctx_get_current(&caller.context));
  } else {
    POLYPATH_CHECK(driver(), stream_get_ctx(stream, &caller.context));
  }
  if (driver().stream_get_id != nullptr) {
    POLYPATH_CHECK(driver(), stream_get_id(stream, &caller.id));
  } else {
    caller.id = anonymous_stream_id();
  }
  return caller;
}

std::optional<Access> Classifier::access_to(const PointerInfo& info, CUdeviceptr address,
                                            std::uint64_t bytes) const {
  // Plain memory is reached by the peer access that prepare() enables, and what another process has
  // is imported for each GPU that copies from or to it. Pools and mappings have their own rules.
  if (info.plain || info.import != nullptr) return Access();
  if (info.pool != nullptr) return Access(info.pool);
  if (!info.mapped) return Access();
  auto mappings = mappings_of(driver(), info, address, bytes);
  if (!mappings) return std::nullopt;
  return Access(std::move(*mappings), shared_);
}

std::variant<ResolvedTransfer, NativeReason> Classifier::ends_of(const Transfer& transfer,
                                                                 EndInfos& infos,
                                                                 const PageableLimits& limits) {
  using Kind = PointerInfo::Kind;
  const CUdeviceptr low = std::min(transfer.dst, transfer.src);
  const CUdeviceptr high = std::max(transfer.dst, transfer.src);
  if (low != 0 && transfer.bytes > std::numeric_limits<CUdeviceptr>::max() - high)
    throw InvalidArgument(fmt::format("bytes are {}: no memory has so many", transfer.bytes));
  if (low != 0 && high - low < transfer.bytes)
    throw InvalidArgument(fmt::format("dst {} and src {} overlap",
                                      range_text(transfer.dst, transfer.bytes),
                                      range_text(transfer.src, transfer.bytes)));
  infos.src = checked_info("src", transfer.src, transfer.bytes);
  infos.dst = checked_info("dst", transfer.dst, transfer.bytes);
  const auto& [dst, src] = infos;
  if (transfer.bytes < never_split_below_) return NativeReason::small;
  if (src.kind == Kind::managed || dst.kind == Kind::managed) return NativeReason::managed;
  const bool is_pageable = src.kind == Kind::unknown || dst.kind == Kind::unknown;
  if (is_pageable && src.kind != Kind::device && dst.kind != Kind::device)
    return NativeReason::same_memory;
  if (is_pageable && transfer.bytes < (src.kind == Kind::unknown ? limits.to_gpu : limits.from_gpu))
    return NativeReason::no_gain;
  if (passes_end(src, transfer.src, transfer.bytes) ||
      passes_end(dst, transfer.dst, transfer.bytes))
    return NativeReason::several_allocations;

  if (is_hidden(src) || is_hidden(dst)) return NativeReason::other_process;
  const auto from = memory_of(transfer.src, src);
  const auto to = memory_of(transfer.dst, dst);
  if (!from || !to || *from == *to || (from->is_host() && to->is_host()))
    return NativeReason::same_memory;
  const auto src_access = access_to(src, transfer.src, transfer.bytes);
  const auto dst_access = access_to(dst, transfer.dst, transfer.bytes);
  if (!src_access || !dst_access) return NativeReason::several_allocations;
  return ResolvedTransfer{
      transfer, {*from, *to, transfer.bytes}, dst, src, *dst_access, *src_access, is_pageable};
}

std::variant<ResolvedTransfer, NativeReason> Classifier::ends_of(const FileRead& read) {
  using Kind = PointerInfo::Kind;
  if (read.bytes > std::numeric_limits<CUdeviceptr>::max() - read.dst)
    throw InvalidArgument(fmt::format("bytes are {}: no memory has so many", read.bytes));
  const PointerInfo dst = checked_info("dst", read.dst, read.bytes);
  if (dst.kind == Kind::unknown || dst.kind == Kind::pinned)
    throw InvalidArgument(
        fmt::format("dst {} is memory of the host: a file is read to memory of a GPU",
                    range_text(read.dst, read.bytes)));
  if (read.bytes < never_split_below_) return NativeReason::small;
  if (dst.kind == Kind::managed) return NativeReason::managed;
  if (passes_end(dst, read.dst, read.bytes)) return NativeReason::several_allocations;
  if (is_hidden(dst)) return NativeReason::other_process;
  const auto access = access_to(dst, read.dst, read.bytes);
  if (!access) return NativeReason::several_allocations;
  const Node& node = source_.node;
  if (node.hosts.empty()) return NativeReason::pageable;
  const MemoryId near = MemoryId::host(node.gpus[static_cast<std::size_t>(dst.gpu)].numa);
  const Transfer transfer{.dst = read.dst, .src = 0, .bytes = read.bytes, .stream = read.stream};
  return ResolvedTransfer{
      transfer, {near, MemoryId::gpu(dst.gpu), read.bytes}, dst, {}, *access, {}, true};
}

std::variant<SplittableTransfer, NativeReason> Classifier::splittable(
    const ResolvedTransfer& ends) {
  const auto& [transfer, request, dst, src, dst_access, src_access, is_pageable] = ends;
  if (driver().stream_is_capturing != nullptr) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (driver().stream_is_capturing(transfer.stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE)
      return NativeReason::capturing;
  }

  SplittableTransfer splittable;
  splittable.transfer = transfer;
  splittable.request = request;
  splittable.caller = caller_of(transfer.stream);
  splittable.caller_gpu = devices_.gpu_of(splittable.caller.context);
  const auto primary = [&](const PointerInfo& info) {
    if (info.import != nullptr) return info.context == splittable.caller.context;
    return info.kind != PointerInfo::Kind::device || info.context == nullptr ||
           info.context == devices_.context_if_active(info.gpu);
  };
  if (splittable.caller_gpu < 0 || !primary(src) || !primary(dst))
    return devices_.any_reset() ? NativeReason::context_reset : NativeReason::other_context;
  // The direct route is one plain copy on `caller_gpu`. The driver executes calls that name
  // both contexts (cuMemcpyPeer) even if that GPU has no access.
  if (!src_access.granted(driver(), splittable.caller_gpu) ||
      !dst_access.granted(driver(), splittable.caller_gpu))
    return NativeReason::unreachable;
  // The driver's number is of the addresses, and what is mapped there may be another memory now.
  splittable.dst_buffer = dst.mapped ? unnumbered_buffer() : dst.buffer;
  splittable.src_buffer = src.mapped ? unnumbered_buffer() : src.buffer;
  splittable.dst_import = dst.import;
  splittable.src_import = src.import;
  // What a program maps itself it may map twice.
  const auto may_have_aliases = [](const PointerInfo& info) {
    return info.kind == PointerInfo::Kind::device && !info.plain && info.import == nullptr;
  };
  splittable.may_have_aliases = may_have_aliases(dst) || may_have_aliases(src);
  splittable.dst_access = dst_access;
  splittable.src_access = src_access;
  return splittable;
}

}  // namespace polypath
