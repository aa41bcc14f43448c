#include "tune/group_timer.hpp"

#include "base/error.hpp"

namespace polypath {
namespace {

CUstream first_of(std::span<const CUstream> streams) {
  if (streams.empty()) throw InvalidArgument("a timing needs at least one stream");
  return streams.front();
}

CUcontext context_of(const CudaDriver& driver, CUstream stream) {
  CUcontext context = nullptr;
  POLYPATH_CHECK(driver, stream_get_ctx(stream, &context));
  return context;
}

}  // namespace

GroupTimer::GroupTimer(const CudaDriver& driver, std::span<const CUstream> streams)
    : driver_(driver),
      streams_(streams.begin(), streams.end()),
      context_(context_of(driver, first_of(streams))),
      start_(driver, context_),
      end_(driver, context_) {
  for (const CUstream stream : streams.subspan(1))
    joins_.emplace_back(driver, context_of(driver, stream), CU_EVENT_DISABLE_TIMING);
}

double GroupTimer::run(const std::function<void()>& issue, const std::function<void()>& ahead) {
  const CurrentContext current(driver_, context_);
  try {
    if (ahead) ahead();
    return fork_run_join(issue);
  } catch (...) {
    for (const CUstream stream : streams_) POLYPATH_WARN(driver_, stream_synchronize(stream));
    throw;
  }
}

double GroupTimer::fork_run_join(const std::function<void()>& issue) {
  const CUstream main = streams_.front();
  POLYPATH_CHECK(driver_, event_record(start_.get(), main));
  for (std::size_t i = 1; i < streams_.size(); ++i)
    POLYPATH_CHECK(driver_, stream_wait_event(streams_[i], start_.get(), 0));
  issue();
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    const CUevent join = joins_[i - 1].get();
    POLYPATH_CHECK(driver_, event_record(join, streams_[i]));
    POLYPATH_CHECK(driver_, stream_wait_event(main, join, 0));
  }
  POLYPATH_CHECK(driver_, event_record(end_.get(), main));
  POLYPATH_CHECK(driver_, event_synchronize(end_.get()));
  return elapsed_us(driver_, start_, end_);
}

}  // namespace polypath
