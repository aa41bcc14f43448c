#include "exec/transfer_sample.hpp"

namespace polypath {

void TransferSample::begin(std::shared_ptr<PooledEvent> fork) noexcept {
  try {
    marks_.clear();
    marks_.push_back({kBegin, std::move(fork)});
  } catch (const std::bad_alloc&) {
    is_failed_ = true;
  }
}

void TransferSample::mark(const CudaDriver& driver, CUstream stream, int what) noexcept {
  if (is_failed_) return;
  if (what == kBegin) marks_.clear();
  try {
    auto event = std::make_shared<PooledEvent>(timed_, gpu_);
    is_failed_ = driver.event_record(event->get(), stream) != CUDA_SUCCESS;
    if (!is_failed_) marks_.push_back({what, std::move(event)});
  } catch (const std::exception&) {
    is_failed_ = true;
  }
}

TransferSample::State TransferSample::read(const CudaDriver& driver, SampleTimes& times) const {
  if (is_failed_ || marks_.size() < 2) return State::failed;
  const CUresult ended = driver.event_query(marks_.back().event->get());
  if (ended == CUDA_ERROR_NOT_READY) return State::pending;
  if (ended != CUDA_SUCCESS) return State::failed;
  times = {};
  for (std::size_t i = 1; i < marks_.size(); ++i) {
    float ms = 0;
    if (driver.event_elapsed_time(&ms, marks_[i - 1].event->get(), marks_[i].event->get()) !=
        CUDA_SUCCESS)
      return State::failed;
    const double us = static_cast<double>(ms) * 1e3;
    times.total_us += us;
    if (marks_[i].what == kDirect) times.direct_us = us;
    if (marks_[i].what >= 0) times.routes.push_back({static_cast<std::size_t>(marks_[i].what), us});
  }
  return State::read;
}

}  // namespace polypath
