#include "collectives/schedule/schedule_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

std::uint64_t offset_of(std::uint64_t word) { return word * sizeof(std::uint64_t); }

/// Whether no rank touches another one's GPU memory.
bool keeps_to_own_scratch(const CollectiveSchedule& schedule) {
  const auto is_own = [](const Step& step, const Place& place) {
    return place.buffer == BufferKind::host || place.owner == step.rank;
  };
  return std::ranges::all_of(schedule.steps, [&](const Step& step) {
    return is_own(step, step.to) &&
           std::ranges::all_of(schedule.reads(step),
                               [&](const Place& place) { return is_own(step, place); });
  });
}

}  // namespace

ScheduleRunner::ScheduleRunner(Communicator& communicator, const KernelModules& modules,
                               std::uint64_t scratch_bytes, std::uint64_t host_bytes)
    : comm_(communicator),
      modules_(modules),
      scratch_(comm_.alloc(scratch_bytes,
                           comm_.has_peer_access() ? SymmetricUse::direct : SymmetricUse::local)),
      words_(comm_.alloc(offset_of(all_word_count(comm_.size())), SymmetricUse::direct)),
      fork_(comm_.driver(), comm_.context(), CU_EVENT_DISABLE_TIMING) {
  if (host_bytes == 0) return;
  try {
    host_ = comm_.alloc_host(host_bytes);
  } catch (const CommunicatorError& error) {
    if (comm_.aborted()) throw;
    log_warn("collectives do without host memory: {}", error.what());
  }
}

bool ScheduleRunner::can_run(const CollectiveSchedule& schedule) const {
  return schedule.host_bytes <= host_bytes() && schedule.scratch_bytes <= scratch_.bytes() &&
         streams_of(schedule) <= kMaxStreams &&
         (comm_.has_peer_access() || keeps_to_own_scratch(schedule));
}

CUdeviceptr ScheduleRunner::address_of(const Place& place, const Call& call) const {
  switch (place.buffer) {
    case BufferKind::input: return call.send + place.offset;
    case BufferKind::output: return call.recv + place.offset;
    case BufferKind::scratch: return scratch_.address(place.owner) + place.offset;
    case BufferKind::host: return host_->address(place.owner) + place.offset;
  }
  return 0;
}

Stream& ScheduleRunner::stream(std::vector<Stream>& streams, int at) {
  while (static_cast<int>(streams.size()) <= at)
    streams.emplace_back(comm_.driver(), comm_.context());
  return streams[static_cast<std::size_t>(at)];
}

Event& ScheduleRunner::event(std::vector<Event>& events, std::size_t at) {
  while (events.size() <= at)
    events.emplace_back(comm_.driver(), comm_.context(), CU_EVENT_DISABLE_TIMING);
  return events[at];
}

void ScheduleRunner::tell(int rank, std::uint64_t word, std::uint64_t value, CUstream stream) {
  comm_.signal(rank, {words_, offset_of(word), value}, stream);
}

void ScheduleRunner::issue_copy(const Step& step, const Call& call, CUstream stream) const {
  const CUdeviceptr from = address_of(step.from, call);
  const CUdeviceptr to = address_of(step.to, call);
  if (from == to) return;  // in place
  POLYPATH_CHECK(comm_.driver(), memcpy_async(to, from, step.bytes, stream));
}

void ScheduleRunner::issue_sum(const CollectiveSchedule& schedule, const Step& step,
                               const Call& call, CUstream stream) const {
  SumArgs args{};
  args.type = schedule.request.type;
  args.reduction = call.operation;
  args.ranks = static_cast<std::uint8_t>(schedule.request.ranks());
  args.to_partial = step.to.is_partial;
  args.count = elements_of(schedule, step);
  args.to = std::bit_cast<void*>(address_of(step.to, call));
  std::uint64_t bytes = 0;
  for (const Place& place : schedule.reads(step)) {
    const auto* const address = std::bit_cast<const void*>(address_of(place, call));
    bytes = std::max(bytes, bytes_of(schedule, step, place));
    if (place.is_partial && schedule.request.order == SumOrder::rank) {
      args.first = address;
    } else {
      args.from[args.from_count++] = address;
    }
  }
  modules_.launch_sum(args, bytes, stream);
}

void ScheduleRunner::issue_step(const CollectiveSchedule& schedule, const Step& step,
                                const Call& call, CUstream stream) {
  if (step.kind == StepKind::copy) {
    issue_copy(step, call, stream);
  } else {
    issue_sum(schedule, step, call, stream);
  }
}

void ScheduleRunner::issue_waits(const RankStep& step, std::uint64_t number, CUstream stream) {
  std::vector<SignalSet::Word> awaited;
  for (const int rank : step.credits)
    if (number > 1) awaited.push_back({0, offset_of(credit_word(rank)), number - 1});
  for (const StreamProgress& progress : step.awaited)
    awaited.push_back({0, offset_of(progress_word(comm_.size(), progress.rank, progress.stream)),
                       progress_value(number, progress.steps)});
  if (!awaited.empty()) comm_.signal_and_wait({words_, {}, awaited}, stream);
}

void ScheduleRunner::wait_for_others(const RankStep& step, CUstream stream) {
  for (const std::size_t other : step.heard_by)
    POLYPATH_CHECK(comm_.driver(), stream_wait_event(stream, came_[other].get(), 0));
}

void ScheduleRunner::fork(std::vector<Stream>& streams, int count) {
  for (int i = 0; i < count; ++i)
    POLYPATH_CHECK(comm_.driver(), stream_wait_event(stream(streams, i).get(), fork_.get(), 0));
}

void ScheduleRunner::join(int count, CUstream stream) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const CUevent end = event(ends_, i).get();
    POLYPATH_CHECK(comm_.driver(), event_record(end, streams_[i].get()));
    POLYPATH_CHECK(comm_.driver(), stream_wait_event(stream, end, 0));
  }
}

void ScheduleRunner::issue_steps(const CollectiveSchedule& schedule, const RankProgram& program,
                                 const Call& call, const AtStep& wait, const AtStep& signal) {
  const CudaDriver& driver = comm_.driver();
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const RankStep& step = program.steps[i];
    const CUstream stream = streams_[static_cast<std::size_t>(step.stream)].get();
    wait(i, stream);
    for (const std::size_t other : step.after)
      POLYPATH_CHECK(driver, stream_wait_event(stream, done_[other].get(), 0));
    issue_step(schedule, schedule.steps[static_cast<std::size_t>(step.index)], call, stream);
    if (step.is_awaited) POLYPATH_CHECK(driver, event_record(event(done_, i).get(), stream));
    signal(i, stream);
  }
}

void ScheduleRunner::issue(const CollectiveSchedule& schedule, const RankProgram& program,
                           const Call& call, CUstream stream,
                           const std::function<void()>& concurrent) {
  const CudaDriver& driver = comm_.driver();
  const int ranks = comm_.size();
  const std::uint64_t number = calls_ + 1;
  POLYPATH_CHECK(driver, event_record(fork_.get(), stream));
  fork(streams_, program.streams);
  if (schedule.waits_aside) fork(waiting_, program.streams);
  concurrent();
  const auto wait = [&](std::size_t i, CUstream queue_stream) {
    const RankStep& step = program.steps[i];
    if (!step.waits()) return wait_for_others(step, queue_stream);
    if (!schedule.waits_aside) return issue_waits(step, number, queue_stream);
    const CUstream aside = waiting_[static_cast<std::size_t>(step.stream)].get();
    issue_waits(step, number, aside);
    const CUevent arrived = event(came_, i).get();
    POLYPATH_CHECK(driver, event_record(arrived, aside));
    POLYPATH_CHECK(driver, stream_wait_event(queue_stream, arrived, 0));
  };
  const auto signal = [&](std::size_t i, CUstream queue_stream) {
    for (const StreamProgress& progress : program.steps[i].signals)
      tell(progress.rank, progress_word(ranks, comm_.rank(), progress.stream),
           progress_value(number, progress.steps), queue_stream);
  };
  issue_steps(schedule, program, call, wait, signal);
  join(program.streams, stream);
  for (int rank = 0; rank < ranks; ++rank)
    if (rank != comm_.rank()) tell(rank, credit_word(comm_.rank()), number, stream);
}

void ScheduleRunner::meet_in_graph(std::uint64_t (*word_of)(int ranks, int rank), bool begins,
                                   CUstream stream) {
  std::vector<SignalSet::Word> signals;
  std::vector<SignalSet::Word> awaited;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank == comm_.rank()) continue;
    signals.push_back({rank, offset_of(word_of(comm_.size(), comm_.rank())), 0});
    awaited.push_back({0, offset_of(word_of(comm_.size(), rank)), 0});
  }
  comm_.signal_and_wait({words_, signals, awaited, offset_of(epoch_word(comm_.size())), begins},
                        stream);
}

void ScheduleRunner::tell_in_graph(const RankStep& step, CUstream stream) {
  const int ranks = comm_.size();
  std::vector<SignalSet::Word> signals;
  for (const StreamProgress& progress : step.signals)
    signals.push_back(
        {progress.rank,
         offset_of(graph_word(ranks, progress_word(ranks, comm_.rank(), progress.stream))),
         progress.steps});
  comm_.signal_and_wait({words_, signals, {}, offset_of(epoch_word(ranks))}, stream);
}

void ScheduleRunner::wait_in_graph(const RankStep& step, CUstream stream) {
  const int ranks = comm_.size();
  std::vector<SignalSet::Word> awaited;
  for (const StreamProgress& progress : step.awaited)
    awaited.push_back(
        {0, offset_of(graph_word(ranks, progress_word(ranks, progress.rank, progress.stream))),
         progress.steps});
  comm_.signal_and_wait({words_, {}, awaited, offset_of(epoch_word(ranks))}, stream);
}

/// Between two meetings of all ranks, so that no credit of a call before is needed, nor given to
/// one after it.
void ScheduleRunner::issue_graph(const CollectiveSchedule& schedule, RankProgram program,
                                 const Call& call, CUstream stream,
                                 const std::function<void()>& concurrent) {
  const CudaDriver& driver = comm_.driver();
  for (RankStep& step : program.steps) step.heard_by.clear();
  // What is next to it must not wait for ranks that make another call, and do not come there.
  POLYPATH_CHECK(driver, event_record(fork_.get(), stream));
  fork(streams_, 1);
  concurrent();
  const CUstream first = streams_.front().get();
  meet_in_graph(begun_word, /*begins=*/true, first);
  POLYPATH_CHECK(driver, event_record(fork_.get(), first));
  fork(streams_, program.streams);
  const auto wait = [&](std::size_t i, CUstream queue_stream) {
    const RankStep& step = program.steps[i];
    for (const std::size_t other : step.behind)
      POLYPATH_CHECK(driver, stream_wait_event(queue_stream, told_[other].get(), 0));
    if (!step.awaited.empty()) wait_in_graph(step, queue_stream);
  };
  const auto signal = [&](std::size_t i, CUstream queue_stream) {
    if (program.steps[i].signals.empty()) return;
    tell_in_graph(program.steps[i], queue_stream);
    POLYPATH_CHECK(driver, event_record(event(told_, i).get(), queue_stream));
  };
  issue_steps(schedule, program, call, wait, signal);
  join(std::max(program.streams, 1), stream);
  meet_in_graph(ended_word, /*begins=*/false, stream);
}

void ScheduleRunner::issue_or_abort(const std::function<void()>& issue) {
  try {
    issue();
  } catch (const std::exception& error) {
    comm_.abort(fmt::format("rank {} could not issue its part of call {} by copies: {}",
                            comm_.rank(), calls_ + 1, error.what()));
    throw;
  }
}

void ScheduleRunner::run(const CollectiveSchedule& schedule, const RankProgram& program,
                         const Call& call, CUstream stream,
                         const std::function<void()>& concurrent) {
  try {
    issue_or_abort([&] { issue(schedule, program, call, stream, concurrent); });
  } catch (...) {
    // What was issued uses the caller's buffers, and ends before what comes on its stream.
    const int forked = std::min(program.streams, static_cast<int>(streams_.size()));
    try {
      join(forked, stream);
    } catch (const std::exception& error) {
      log_warn("what was issued of a collective cannot be waited for: {}", error.what());
    }
    throw;
  }
  ++calls_;
}

void ScheduleRunner::capture(const CollectiveSchedule& schedule, const RankProgram& program,
                             const Call& call, CUstream stream,
                             const std::function<void()>& concurrent) {
  issue_or_abort([&] { issue_graph(schedule, program, call, stream, concurrent); });
}

}  // namespace polypath
