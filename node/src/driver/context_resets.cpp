#include "driver/context_resets.hpp"

#include <array>
#include <atomic>

namespace polypath {
namespace {

/// By ordinal; GPUs whose ordinals are so far apart share one.
constexpr std::size_t kCounts = 64;
constinit std::array<std::atomic<unsigned>, kCounts> resets{};
constinit std::atomic<bool> is_ending{false};

std::shared_timed_mutex& users() {
  static auto& all = *new std::shared_timed_mutex;  // threads may hold it when the process ends
  return all;
}

std::atomic<unsigned>& resets_of(CUdevice gpu) noexcept {
  return resets[static_cast<std::size_t>(gpu) % kCounts];
}

/// What the driver calls the context; 0: it does not say.
unsigned long long number_of(const CudaDriver& driver, CUcontext context) noexcept {
  unsigned long long number = 0;
  return driver.ctx_get_id != nullptr && driver.ctx_get_id(context, &number) == CUDA_SUCCESS
             ? number
             : 0;
}

}  // namespace

PrimaryContext::PrimaryContext(const CudaDriver& driver, int gpu) : driver_(driver) {
  POLYPATH_CHECK(driver, device_get(&device_, gpu));
  POLYPATH_CHECK(driver, primary_ctx_retain(&context_, device_));
  resets_ = resets_of(device_).load();
  number_ = number_of(driver, context_);
}

PrimaryContext::~PrimaryContext() { POLYPATH_WARN(driver_, primary_ctx_release(device_)); }

bool PrimaryContext::is_lost() const noexcept { return resets_ != resets_of(device_).load(); }

bool PrimaryContext::is_there() const noexcept {
  if (is_lost() || number_ == 0) return !is_lost();
  unsigned long long number = 0;
  const CUresult result = driver_.ctx_get_id(context_, &number);
  if (result == CUDA_SUCCESS) return number == number_;
  // Other errors are of work that failed there.
  return result != CUDA_ERROR_INVALID_CONTEXT && result != CUDA_ERROR_CONTEXT_IS_DESTROYED &&
         result != CUDA_ERROR_DEINITIALIZED;
}

ContextInUse::ContextInUse(const PrimaryContext& context)
    : lock_(users()), is_there_(!is_ending.load() && context.is_there()) {}

void lose_contexts(CUdevice gpu) noexcept { resets_of(gpu).fetch_add(1); }

void lose_contexts_at_exit() noexcept { is_ending.store(true); }

void wait_for_context_users(std::chrono::milliseconds limit) noexcept {
  const std::unique_lock lock(users(), limit);
}

}  // namespace polypath
