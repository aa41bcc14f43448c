#include "collectives/schedule/schedule_runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "driver/check.hpp"

namespace polypath {

ScheduleRunner::ScheduleRunner(Communicator& communicator, const KernelModules& modules,
                               std::uint64_t scratch_bytes, std::uint64_t host_bytes)
    : comm_(communicator),
      modules_(modules),
      scratch_(comm_.alloc(scratch_bytes)),
      words_(comm_.alloc(word_count(comm_.size()) * sizeof(std::uint64_t))),
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
         streams_of(schedule) <= kMostStreams;
}

CUdeviceptr ScheduleRunner::address_of(const CollectivePlace& place, const Call& call) const {
  switch (place.buffer) {
    case CollectiveBuffer::input: return call.send + place.offset;
    case CollectiveBuffer::output: return call.recv + place.offset;
    case CollectiveBuffer::scratch: return scratch_.address(place.rank) + place.offset;
    case CollectiveBuffer::host: return host_->address(place.rank) + place.offset;
  }
  return 0;
}

Event& ScheduleRunner::event(std::vector<Event>& events, std::size_t at) {
  while (events.size() <= at)
    events.emplace_back(comm_.driver(), comm_.context(), CU_EVENT_DISABLE_TIMING);
  return events[at];
}

void ScheduleRunner::tell(int rank, std::uint64_t word, std::uint64_t value, CUstream stream) {
  comm_.signal(rank, {words_, word * sizeof(std::uint64_t), value}, stream);
}

void ScheduleRunner::wait(std::uint64_t word, std::uint64_t value, CUstream stream) {
  comm_.wait_signal({words_, word * sizeof(std::uint64_t), value}, stream);
}

void ScheduleRunner::issue_copy(const CollectiveSchedule& schedule, const CollectiveStep& step,
                                const Call& call, CUstream stream) const {
  const CUdeviceptr from = address_of(step.operands.front(), call);
  const CUdeviceptr to = address_of(step.to, call);
  if (from == to) return;  // in place
  POLYPATH_CHECK(comm_.driver(),
                 memcpy_async(to, from, bytes_of(schedule, step, step.partial.front()), stream));
}

void ScheduleRunner::issue_sum(const CollectiveSchedule& schedule, const CollectiveStep& step,
                               const Call& call, CUstream stream) const {
  SumArgs args{};
  args.type = schedule.request.type;
  args.reduction = call.operation;
  args.ranks = static_cast<std::uint8_t>(schedule.request.ranks());
  args.to_partial = step.to_partial;
  args.count = step.elements;
  args.to = std::bit_cast<void*>(address_of(step.to, call));
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < step.operands.size(); ++i) {
    const auto* const place = std::bit_cast<const void*>(address_of(step.operands[i], call));
    bytes = std::max(bytes, bytes_of(schedule, step, step.partial[i]));
    if (step.partial[i]) {
      args.first = place;
    } else {
      args.from[args.from_count++] = place;
    }
  }
  modules_.launch_sum(args, bytes, stream);
}

void ScheduleRunner::issue_waits(const RankStep& step, std::uint64_t number, CUstream stream) {
  for (const int rank : step.credits)
    if (number > 1) wait(credit_word(rank), number - 1, stream);
  for (const StreamProgress& progress : step.awaited)
    wait(progress_word(comm_.size(), progress.rank, progress.stream),
         progress_value(number, progress.steps), stream);
}

void ScheduleRunner::issue(const CollectiveSchedule& schedule, const RankProgram& program,
                           const Call& call, CUstream stream, const std::function<void()>& beside) {
  const CudaDriver& driver = comm_.driver();
  const int ranks = comm_.size();
  const auto have_streams = [&](std::vector<Stream>& streams) {
    while (static_cast<int>(streams.size()) < program.streams)
      streams.emplace_back(driver, comm_.context());
  };
  have_streams(streams_);
  if (schedule.waits_aside) have_streams(waiting_);
  const std::uint64_t number = calls_ + 1;
  const auto stream_of = [&](const RankStep& step) {
    return streams_[static_cast<std::size_t>(step.stream)].get();
  };

  POLYPATH_CHECK(driver, event_record(fork_.get(), stream));
  for (std::size_t i = 0; i < static_cast<std::size_t>(program.streams); ++i) {
    POLYPATH_CHECK(driver, stream_wait_event(streams_[i].get(), fork_.get(), 0));
    if (schedule.waits_aside)
      POLYPATH_CHECK(driver, stream_wait_event(waiting_[i].get(), fork_.get(), 0));
  }
  if (beside) beside();
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const RankStep& mine = program.steps[i];
    const CollectiveStep& step = schedule.steps[static_cast<std::size_t>(mine.index)];
    const CUstream its_stream = stream_of(mine);
    if (schedule.waits_aside && !(mine.credits.empty() && mine.awaited.empty())) {
      const CUstream aside = waiting_[static_cast<std::size_t>(mine.stream)].get();
      issue_waits(mine, number, aside);
      const CUevent came = event(came_, i).get();
      POLYPATH_CHECK(driver, event_record(came, aside));
      POLYPATH_CHECK(driver, stream_wait_event(its_stream, came, 0));
    } else {
      issue_waits(mine, number, its_stream);
    }
    for (const std::size_t other : mine.after)
      POLYPATH_CHECK(driver, stream_wait_event(its_stream, done_[other].get(), 0));
    if (step.kind == CollectiveStepKind::copy) {
      issue_copy(schedule, step, call, its_stream);
    } else {
      issue_sum(schedule, step, call, its_stream);
    }
    if (mine.is_awaited) POLYPATH_CHECK(driver, event_record(event(done_, i).get(), its_stream));
    for (const StreamProgress& progress : mine.told)
      tell(progress.rank, progress_word(ranks, comm_.rank(), progress.stream),
           progress_value(number, progress.steps), its_stream);
  }
  for (int i = 0; i < program.streams; ++i) {
    const CUevent end = event(ends_, static_cast<std::size_t>(i)).get();
    POLYPATH_CHECK(driver, event_record(end, streams_[static_cast<std::size_t>(i)].get()));
    POLYPATH_CHECK(driver, stream_wait_event(stream, end, 0));
  }
  for (int rank = 0; rank < ranks; ++rank)
    if (rank != comm_.rank()) tell(rank, credit_word(comm_.rank()), number, stream);
}

void ScheduleRunner::run(const CollectiveSchedule& schedule, const RankProgram& program,
                         const Call& call, CUstream stream, const std::function<void()>& beside) {
  try {
    issue(schedule, program, call, stream, beside);
  } catch (const std::exception& error) {
    comm_.abort(fmt::format("rank {} could not issue its part of call {} by copies: {}",
                            comm_.rank(), calls_ + 1, error.what()));
    throw;
  }
  ++calls_;
}

}  // namespace polypath
