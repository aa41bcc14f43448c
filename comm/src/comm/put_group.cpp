// Puts of one group: small ones by one kernel; else planned together, to several ranks at once.
#include "comm/put_streams.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/units.hpp"
#include "comm/communicator_impl.hpp"
#include "core/copy_engine.hpp"
#include "core/pointer_info.hpp"
#include "driver/check.hpp"
#include "driver/resources.hpp"

namespace polypath {
namespace {

/// Beyond them puts share the caller's stream.
constexpr std::size_t kMaxLanes = 16;

/// Less than that in a put of a group, and forking costs more than it saves.
constexpr std::uint64_t kWorthALane = kMiB;

/// What one block of a kernel puts before several are the sooner for it, and what each of those has
/// at least.
constexpr std::uint64_t kMaxInOneBlock = 64 * kKiB;
constexpr std::uint64_t kMinPerBlock = 32 * kKiB;
/// So many blocks of a kernel send as fast as an NVLink port takes it (docs/cuda-notes.md).
constexpr std::uint64_t kMaxPutBlocks = 16;
/// What a kernel puts by one block where it cannot be several; beyond it copies are sooner.
constexpr std::uint64_t kWorthOneBlock = 128 * kKiB;

/// A put over another link than an NVSwitch's: larger copies may go over several paths.
constexpr std::uint64_t kMaxOverLink = 256 * kKiB;

/// A block that waits after puts has their threads, three quarters of a multiprocessor's
/// registers: with more streams that wait already a kernel of one warp does.
constexpr std::size_t kMaxWaitingStreams = 8;

}  // namespace

std::vector<PutStreamPool::Lane*> PutStreamPool::fork(std::size_t count, CUstream caller) {
  std::vector<Lane*> taken;
  for (Lane& lane : lanes_) {
    if (taken.size() == count) break;
    if (driver_.event_query(lane.done.get()) != CUDA_ERROR_NOT_READY) taken.push_back(&lane);
  }
  while (taken.size() < count && lanes_.size() < kMaxLanes)
    taken.push_back(&lanes_.emplace_back(driver_, context_));
  if (taken.empty()) return taken;
  POLYPATH_CHECK(driver_, event_record(fork_.get(), caller));
  for (const Lane* const lane : taken)
    POLYPATH_CHECK(driver_, stream_wait_event(lane->stream.get(), fork_.get(), 0));
  return taken;
}

void PutStreamPool::join(const std::vector<Lane*>& lanes, CUstream caller) const {
  for (const Lane* const lane : lanes) {
    POLYPATH_CHECK(driver_, event_record(lane->done.get(), lane->stream.get()));
    POLYPATH_CHECK(driver_, stream_wait_event(caller, lane->done.get(), 0));
  }
}

std::uint32_t* Communicator::Impl::counts_of(CUstream stream) {
  // A graph may run next to what else is on the stream that it was captured on.
  if (driver->stream_get_id == nullptr || is_captured(*driver, stream)) return nullptr;
  unsigned long long id = 0;
  POLYPATH_CHECK(*driver, stream_get_id(stream, &id));
  auto known = counting_streams.find(id);
  if (known == counting_streams.end()) {
    if (counting_streams.size() == kCountingStreams) return nullptr;
    known = counting_streams.emplace(id, counting_streams.size()).first;
  }
  return reinterpret_cast<std::uint32_t*>(own_words.local() + counts_offset()) +
         known->second * static_cast<std::uint64_t>(members.size());
}

bool Communicator::Impl::fit_kernel(std::span<const PutWithSignal> puts, CUstream stream) {
  if (put_kernel_max_bytes == 0) return puts.empty();
  const auto gpu_of = [&](int rank) { return members.all[static_cast<std::size_t>(rank)].gpu; };
  const int own = gpu_of(members.rank);
  const auto is_small = [&](const Put& put) {
    if (put.bytes > put_kernel_max_bytes || !put.memory.is_shared()) return false;
    if (put.bytes <= kMaxOverLink) return true;
    const auto link = node.find_link(MemoryId::gpu(own), MemoryId::gpu(gpu_of(put.to)));
    return link && node.links[static_cast<std::size_t>(*link)].type == LinkType::nvswitch;
  };
  const auto reached = [&](const Put& put) {
    const CUdeviceptr dst = put.memory.address(put.to) + put.offset;
    if (std::max(dst, put.src) - std::min(dst, put.src) < put.bytes) return false;  // an overlap
    const PointerInfo src = inspect(*driver, put.src);
    return src.kind == PointerInfo::Kind::device && src.bytes != 0 &&
           put.bytes <= src.bytes - (put.src - src.start) &&
           (src.plain ? src.context == context->get() : src.pool != nullptr && src.gpu == own);
  };
  for (const auto& [put, then] : puts) {
    if (put.bytes == 0) continue;
    if (!is_small(put) || !reached(put)) return false;
    if (put.bytes <= kWorthOneBlock) continue;
    const bool is_alone = std::ranges::count_if(puts, [&, to = put.to](const PutWithSignal& other) {
                            return other.put.to == to;
                          }) == 1;
    if (!is_alone || counts_of(stream) == nullptr) return false;
  }
  return true;
}

void Communicator::Impl::put_by_kernel(std::span<const PutWithSignal> puts,
                                       std::span<const Signal> awaited, CUstream stream) {
  const auto word_at = [](CUdeviceptr address) {
    return reinterpret_cast<std::uint64_t*>(address);
  };
  const bool is_large = std::ranges::any_of(
      puts, [](const PutWithSignal& entry) { return entry.put.bytes > kMaxInOneBlock; });
  std::uint32_t* const counts = is_large ? counts_of(stream) : nullptr;
  std::vector<std::uint64_t> puts_to(static_cast<std::size_t>(members.size()));
  for (const PutWithSignal& entry : puts) ++puts_to[static_cast<std::size_t>(entry.put.to)];
  const auto ranks = std::ranges::count_if(puts_to, [](std::uint64_t count) { return count > 0; });
  const auto blocks_of = [&](const Put& put) -> std::uint64_t {
    if (counts == nullptr || puts_to[static_cast<std::size_t>(put.to)] > 1 ||
        put.bytes <= kMaxInOneBlock)
      return 1;
    const std::uint64_t most =
        std::max<std::uint64_t>(kMaxPutBlocks / static_cast<std::uint64_t>(ranks), 2);
    return std::min((put.bytes + kMinPerBlock - 1) / kMinPerBlock, most);
  };
  std::vector<std::pair<int, std::uint32_t>> blocks;  // the ranks that have one, and which
  while (!puts.empty() || !awaited.empty()) {
    StreamPutArgs args{};
    args.wait_ctx = wait_ctx();
    blocks.clear();
    while (!puts.empty() && args.part_count < kMaxPutParts) {
      const auto& [put, then] = puts.front();
      puts = puts.subspan(1);
      if (put.bytes == 0 && !then) continue;
      PutPart& part = args.parts[args.part_count++];
      part.from = reinterpret_cast<const unsigned char*>(put.src);
      part.to = reinterpret_cast<unsigned char*>(put.memory.address(put.to) + put.offset);
      part.bytes = put.bytes;
      if (then) {
        part.word = word_at(then->memory.address(put.to) + then->offset);
        part.value = then->value;
      }
      auto known = std::ranges::find(blocks, put.to, &std::pair<int, std::uint32_t>::first);
      part.blocks = static_cast<std::uint32_t>(blocks_of(put));
      if (part.blocks > 1) part.arrived = counts + put.to;
      if (known == blocks.end()) {
        known = blocks.insert(known, {put.to, args.put_blocks});
        args.put_blocks += part.blocks;
      }
      part.first_block = known->second;
      if (put.bytes > 0) ++puts_by_kernel;
    }
    const bool has_bytes = std::any_of(args.parts, args.parts + args.part_count,
                                       [](const PutPart& part) { return part.bytes > 0; });
    if (puts.empty() && (!has_bytes || !waits->on_more_than(kMaxWaitingStreams)))
      while (!awaited.empty() && args.wait_count < kMaxPutWaits) {
        const Signal& word = awaited.front();
        args.waits[args.wait_count++] = {word_at(word.memory.local() + word.offset), word.value,
                                         word.offset, word.memory.bytes()};
        awaited = awaited.subspan(1);
      }
    if (args.put_blocks + args.wait_count > 0) waits->put(args, has_bytes, stream);
  }
}

void Communicator::put_group(std::span<const PutWithSignal> puts, std::span<const Signal> awaited,
                             CUstream stream) {
  Impl& impl = *impl_;
  const auto require_each = [&](const char* what, auto all, const auto& require) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      try {
        require(all[i]);
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format("{} {}: {}", what, i, error.what()));
      }
    }
  };
  require_each("put", puts, [&](const PutWithSignal& entry) {
    impl.require(entry.put);
    if (entry.then) impl.require(*entry.then);
  });
  require_each("awaited", awaited, [&](const Signal& signal) { impl.require(signal); });
  const CurrentContext current = impl.on(stream, "put_group");

  if (impl.fit_kernel(puts, stream)) return impl.put_by_kernel(puts, awaited, stream);

  // The ranks that are put to, each with a stream: the first with the caller's.
  std::vector<int> ranks;
  bool is_worth_it = false;
  for (const PutWithSignal& entry : puts) {
    if (std::ranges::find(ranks, entry.put.to) == ranks.end()) ranks.push_back(entry.put.to);
    is_worth_it = is_worth_it || entry.put.bytes >= kWorthALane;
  }
  std::vector<PutStreamPool::Lane*> lanes;
  const bool captured = is_captured(*impl.driver, stream);
  if (is_worth_it && ranks.size() > 1 && !captured)
    lanes = impl.put_streams->fork(ranks.size() - 1, stream);
  const auto stream_of = [&](int rank) {
    const auto at = static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
    return at == 0 || at > lanes.size() ? stream : lanes[at - 1]->stream.get();
  };
  // On one stream the kernel that waits stores them, unless puts must need no room for one.
  std::vector<PutWithSignal> words;
  try {
    std::vector<Transfer> transfers;
    for (const auto& [put, then] : puts)
      if (put.bytes > 0)
        transfers.push_back({.dst = put.memory.address(put.to) + put.offset,
                             .src = put.src,
                             .bytes = put.bytes,
                             .stream = stream_of(put.to),
                             .is_exchange = !awaited.empty()});
    if (impl.engine != nullptr && !transfers.empty()) {
      impl.engine->group_copy_async(transfers);
    } else {
      for (const Transfer& transfer : transfers)
        POLYPATH_CHECK(*impl.driver,
                       memcpy_async(transfer.dst, transfer.src, transfer.bytes, transfer.stream));
    }
    impl.puts_by_copies += transfers.size();
    for (const auto& [put, then] : puts) {
      if (!then) continue;
      if (lanes.empty() && !awaited.empty() && impl.put_kernel_max_bytes > 0)
        words.push_back({{put.to, put.memory}, then});
      else
        impl.tell(put.to, *then, stream_of(put.to), captured);
    }
  } catch (...) {
    impl.put_streams->join(lanes, stream);
    throw;
  }
  impl.put_streams->join(lanes, stream);
  impl.put_by_kernel(words, awaited, stream);
}

}  // namespace polypath
