#include "core/block_ranges.hpp"

#include <algorithm>

#include "driver/check.hpp"

namespace polypath {
namespace {

/// What a batch is taken to gain by a GPU that helps: mappings get access for it when that is worth
/// it, small ones at once.
constexpr double kSavedByBatchUs = 50;

}  // namespace

BlockRanges::BlockRanges(const NodeSource& source, Classifier& classifier, Devices& devices,
                         ImportedMemories& imports)
    : source_(source), classifier_(classifier), devices_(devices), imports_(imports) {
  pageable_.reason = NativeReason::pageable;
}

BlockRange& BlockRanges::look_up(const char* argument, CUdeviceptr address, std::uint64_t bytes) {
  const auto after =
      std::ranges::upper_bound(by_begin_, address, {}, &std::pair<CUdeviceptr, BlockRange*>::first);
  if (after != by_begin_.begin()) {
    BlockRange& known = *std::prev(after)->second;
    if (address < known.end) return known;
  }
  BlockRange range = make(argument, address, bytes);
  // The pages around it may be anything.
  if (range.reason == NativeReason::pageable) return pageable_;
  BlockRange& kept = ranges_.emplace_back(std::move(range));
  kept.distances.resize(source_.node.gpus.size());
  by_begin_.insert(after, {kept.begin, &kept});
  return kept;
}

BlockRange BlockRanges::make(const char* argument, CUdeviceptr address, std::uint64_t bytes) {
  using Kind = PointerInfo::Kind;
  BlockRange range;
  range.info = classifier_.checked_info(argument, address, bytes);
  const PointerInfo& info = range.info;
  if (info.kind == Kind::unknown) {
    range.reason = NativeReason::pageable;
    return range;
  }
  range.begin = info.start;
  range.end = info.start + info.bytes;
  if (info.mapped) {
    // A reservation's mappings may lie in several memories.
    const auto mapping = mapping_at(driver(), address);
    range.begin = mapping ? mapping->begin : address;
    range.end = mapping ? mapping->end : address + 1;
    range.access = Access({address}, classifier_.shared());
  } else if (info.bytes == 0) {
    range.begin = address;
    range.end = address + 1;
    range.reason = NativeReason::several_allocations;
  }
  if (info.pool != nullptr) range.access = Access(info.pool);
  if (info.kind == Kind::managed) {
    range.reason = NativeReason::managed;
  } else if (info.kind == Kind::device && info.gpu < 0) {
    range.reason = NativeReason::other_process;
  }
  if (const auto memory = classifier_.memory_of(address, info))
    range.memory = *memory;
  else
    range.reason = NativeReason::same_memory;
  return range;
}

std::optional<std::uint64_t> BlockRanges::distance(BlockRange& range, int gpu, CUcontext context,
                                                   bool reaches_peer, ContextGuard& guard) {
  auto& known = range.distances[static_cast<std::size_t>(gpu)];
  if (!known) known.emplace(ask_distance(range, gpu, context, reaches_peer, guard));
  return *known;
}

std::optional<std::uint64_t> BlockRanges::ask_distance(const BlockRange& range, int gpu,
                                                       CUcontext context, bool reaches_peer,
                                                       ContextGuard& guard) const {
  const PointerInfo& info = range.info;
  if (info.import != nullptr) {
    if (info.context == context) return 0;
    const auto there = info.import->address_in(gpu, context, range.begin);
    if (!there) return std::nullopt;
    return *there - range.begin;
  }
  if (info.kind == PointerInfo::Kind::device) {
    if (info.pool != nullptr || info.mapped)
      return range.access.obtain(driver(), gpu, kSavedByBatchUs) ? std::optional<std::uint64_t>(0)
                                                                 : std::nullopt;
    // Peer access is of primary contexts.
    if (info.context != devices_.context_if_active(info.gpu)) return std::nullopt;
    return gpu == info.gpu || reaches_peer ? std::optional<std::uint64_t>(0) : std::nullopt;
  }
  // Memory may be registered for one context alone, and for none at its own address.
  if (info.mapped && !range.access.granted(driver(), gpu)) return std::nullopt;
  guard.use(context);
  CUdeviceptr there = 0;
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_DEVICE_POINTER;
  void* value = &there;
  if (driver().pointer_get_attributes(1, &attribute, &value, range.begin) != CUDA_SUCCESS ||
      there == 0)
    return std::nullopt;
  return there - range.begin;
}

}  // namespace polypath
