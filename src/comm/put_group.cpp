// Puts of one group: planned together, to several ranks at once.
#include "comm/put_streams.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/units.hpp"
#include "comm/communicator_impl.hpp"
#include "core/classifier.hpp"
#include "core/context.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

/// Beyond them puts share the caller's stream.
constexpr std::size_t kMostLanes = 16;

/// Less than that in a put of a group, and forking costs more than it saves.
constexpr std::uint64_t kWorthALane = kMiB;

}  // namespace

std::vector<PutStreams::Lane*> PutStreams::fork(std::size_t count, CUstream caller) {
  std::vector<Lane*> taken;
  for (Lane& lane : lanes_) {
    if (taken.size() == count) break;
    if (driver_.event_query(lane.done.get()) != CUDA_ERROR_NOT_READY) taken.push_back(&lane);
  }
  while (taken.size() < count && lanes_.size() < kMostLanes)
    taken.push_back(&lanes_.emplace_back(driver_, context_));
  if (taken.empty()) return taken;
  POLYPATH_CHECK(driver_, event_record(fork_.get(), caller));
  for (const Lane* const lane : taken)
    POLYPATH_CHECK(driver_, stream_wait_event(lane->stream.get(), fork_.get(), 0));
  return taken;
}

void PutStreams::join(const std::vector<Lane*>& lanes, CUstream caller) const {
  for (const Lane* const lane : lanes) {
    POLYPATH_CHECK(driver_, event_record(lane->done.get(), lane->stream.get()));
    POLYPATH_CHECK(driver_, stream_wait_event(caller, lane->done.get(), 0));
  }
}

void Communicator::put_group(std::span<const SignalledPut> puts, CUstream stream) {
  Impl& impl = *impl_;
  for (std::size_t i = 0; i < puts.size(); ++i) {
    try {
      impl.require(puts[i].put);
      if (puts[i].then) impl.require(*puts[i].then);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("put {}: {}", i, error.what()));
    }
  }
  const CurrentContext current = impl.on(stream, "put_group");

  // The ranks that are put to, each with a stream: the first with the caller's.
  std::vector<int> ranks;
  bool is_worth_it = false;
  for (const SignalledPut& one : puts) {
    if (std::ranges::find(ranks, one.put.to) == ranks.end()) ranks.push_back(one.put.to);
    is_worth_it = is_worth_it || one.put.bytes >= kWorthALane;
  }
  std::vector<PutStreams::Lane*> lanes;
  const bool captured = is_captured(*impl.driver, stream);
  if (is_worth_it && ranks.size() > 1 && !captured)
    lanes = impl.put_streams->fork(ranks.size() - 1, stream);
  const auto stream_of = [&](int rank) {
    const auto at = static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
    return at == 0 || at > lanes.size() ? stream : lanes[at - 1]->stream.get();
  };
  try {
    std::vector<Transfer> transfers;
    for (const auto& [put, then] : puts)
      if (put.bytes > 0)
        transfers.push_back(
            {put.memory.address(put.to) + put.offset, put.src, put.bytes, stream_of(put.to)});
    if (impl.engine != nullptr && !transfers.empty()) {
      impl.engine->group_copy_async(transfers);
    } else {
      for (const Transfer& one : transfers)
        POLYPATH_CHECK(*impl.driver, memcpy_async(one.dst, one.src, one.bytes, one.stream));
    }
    for (const auto& [put, then] : puts)
      if (then) impl.tell(put.to, *then, stream_of(put.to), captured);
  } catch (...) {
    impl.put_streams->join(lanes, stream);
    throw;
  }
  impl.put_streams->join(lanes, stream);
}

}  // namespace polypath
