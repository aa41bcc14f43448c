#include "nccl/creation.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <utility>

#include "base/thread.hpp"
#include "gate/process.hpp"
#include "gate/text.hpp"
#include "nccl/agreement.hpp"
#include "nccl/offload_policy.hpp"
#include "nccl/real_library.hpp"

namespace polypath::nccl {
namespace {

using gate::log_line;
using gate::LogLevel;

constexpr std::uint32_t kMaxBlocks = 64;
constexpr std::uint32_t kMaxNcclBlocks = 32;

/// Why this rank cannot take part; "": it can, with `used`.
std::string missing_here(int ranks, bool is_blocking, EngineRef& used) noexcept {
  if (!settings().is_on) return "switched off (nccl_collectives)";
  if (ranks < 2) return "one rank";
  if (!is_blocking) return "not blocking";
  const RealNccl* const real = known_real_library();
  if (real == nullptr || real->ncclAllGather == nullptr || real->ncclCommCuDevice == nullptr ||
      real->ncclCommCount == nullptr || real->ncclCommUserRank == nullptr)
    return "the NCCL has not all that is needed";
  if (!has_room()) return "too many communicators";
  std::string why;
  used = engine(&why);
  return why;
}

constexpr const char* kNothingFaster = "nothing was measured to be faster here";

/// A configuration file can make it so: its setting is not seen here.
void wait_until_made(const RealNccl& real, void* handle) noexcept {
  int state = kSuccess;
  while (real.ncclCommGetAsyncError != nullptr &&
         real.ncclCommGetAsyncError(handle, &state) == kSuccess && state == kInProgress)
    gate::pause_us(100);
}

CUcontext primary_context(int gpu) noexcept {
  CUdevice device = 0;
  CUcontext context = nullptr;
  // Kept: NCCL has it as well, and it goes with the process.
  if (driver::device_get(&device, gpu) != CUDA_SUCCESS ||
      driver::primary_ctx_retain(&context, device) != CUDA_SUCCESS)
    return nullptr;
  return context;
}

/// Logs why NCCL takes all its sums, for users that asked for polypath.
void tell(const Communicator& state) noexcept {
  count_communicator(state.refusal);
  if (state.refusal.empty()) return;
  if (state.size > 1) report_unguaranteed("an NCCL communicator", state.refusal.c_str());
  log_line(LogLevel::info, "an NCCL communicator of %d ranks stays NCCL's: %s", state.size,
           state.refusal.c_str());
}

/// Once a process, to its user by the lowest of the ranks that are there: one line a node. Ranks
/// stay shown, or a later rank would find fewer; of the first communicators alone, for others
/// are told of in no line.
void tell_partial(Advertisement&& own, int rank, int ranks) noexcept {
  constexpr unsigned kKept = 2 * gate::kMaxRanks;
  static std::array<Advertisement, kKept> kept;
  static std::atomic<unsigned> kept_count;
  static std::atomic_flag is_told;
  const int present = own.count(ranks);
  const bool is_lowest = own.lowest(ranks) == rank;
  if (const unsigned place = kept_count++; place < kKept) kept.at(place) = std::move(own);
  const bool is_warning = is_lowest && !is_told.test_and_set();
  log_line(is_warning ? LogLevel::warn : LogLevel::info,
           "%d of the %d ranks of an NCCL communicator are here under polypath; the others are "
           "not, or on other nodes: it stays NCCL's",
           present, ranks);
}

}  // namespace

void load_kernels(int gpu, int ranks) noexcept {
  if (!settings().is_on || ranks < 2) return;
  const EngineRef api = engine(nullptr);
  if (api == nullptr || !(settings().reproducible || has_measured(*api))) return;
  const RelaxedCapture relaxed;
  CUdevice current = 0;
  // Without a context it is not known: then they are loaded with the communicator.
  if (gpu < 0) gpu = driver::ctx_get_device(&current) == CUDA_SUCCESS ? current : -1;
  if (gpu < 0 || primary_context(gpu) == nullptr) return;
  // Where there are none, the communicators say so.
  static_cast<void>(api->load_kernels(api->context, gpu));
}

Creation::Creation(const CommKey& key, int rank, int ranks, bool is_blocking, int gpu) noexcept
    : key_(key), rank_(rank), ranks_(ranks), is_blocking_(is_blocking) {
  report_at_exit();
  if (!key.is_known())
    missing_ = "part of one that was not seen made";
  else
    missing_ = missing_here(ranks, is_blocking, engine_);
  if (!missing_.empty()) return;
  buffers_ = ExchangeBuffers(gpu);
  missing_ = buffers_.why();
  if (!missing_.empty()) return;
  presence_ = Advertisement(key, rank);
  if (!presence_.is_shown()) missing_ = "it could not be shown to other ranks";
}

void Creation::leave_with_nccl(const char* why) noexcept {
  if (missing_.empty()) missing_ = why;
  presence_ = Advertisement();
}

int Creation::finish() noexcept {
  const RealNccl& real = *known_real_library();
  if (handle_ == nullptr || *handle_ == nullptr) return kSuccess;
  const ReentrancyGuard inside;
  auto state = std::make_unique<Communicator>();
  state->handle = *handle_;
  state->key = key_;
  state->is_blocking = is_blocking_;
  if (is_blocking_) {
    wait_until_made(real, state->handle);
    if (real.ncclCommCount != nullptr) real.ncclCommCount(state->handle, &state->size);
    if (real.ncclCommUserRank != nullptr) real.ncclCommUserRank(state->handle, &state->rank);
  } else {
    state->size = ranks_;
  }
  int result = kSuccess;
  state->refusal = missing_;
  if (state->refusal.empty()) {
    if (state->size < 2) {
      state->refusal = "one rank";
    } else if (state->size > gate::kMaxRanks) {
      state->refusal = "more than 8 ranks";
    } else if (presence_.count(ranks_) != state->size) {
      state->refusal = "not all ranks are here under polypath";
      tell_partial(std::move(presence_), rank_, ranks_);
    } else {
      result = agree(*state);
    }
  }
  presence_ = Advertisement();
  tell(*state);
  if (result == kSuccess && add(state.get())) state.release();
  return result;
}

int Creation::agree(Communicator& state) noexcept {
  const RealNccl& real = *known_real_library();
  const Engine& api = *engine_;
  const RelaxedCapture relaxed;
  int gpu = -1;
  real.ncclCommCuDevice(state.handle, &gpu);
  if (!buffers_.are_taken()) buffers_ = ExchangeBuffers(gpu);
  if (!buffers_.why().empty()) {
    log_line(LogLevel::error, "an NCCL communicator's ranks cannot agree: %s",
             buffers_.why().c_str());
    state.refusal = buffers_.why();
    return kSystemError;
  }
  const CUcontext context = buffers_.context();
  HostAllGather exchange(real, state.handle, state.size, key_, buffers_);
  const auto size = static_cast<std::size_t>(state.size);

  Record local = own_record();
  local.gpu = gpu;
  local.measured = has_measured(api) ? 1 : 0;
  std::vector<Record> records(size);
  std::vector<Outcome> outcomes(size);
  Outcome outcome;
  const auto failed = [&] {
    state.refusal = exchange.why();
    if (exchange.failed_alike()) return kSuccess;
    log_line(LogLevel::error, "an NCCL communicator failed while its ranks agreed: %s",
             exchange.why().c_str());
    return kSystemError;
  };
  if (!exchange.gather(&local, records.data(), sizeof local)) return failed();
  state.refusal = refusal_of(records);
  if (!state.refusal.empty()) return kSuccess;
  if (!may_take_any(records)) {
    state.refusal = kNothingFaster;
    state.has_policy = true;
    return kSuccess;
  }

  polypath_comm_options options{};
  options.timeout_ms = settings().timeout_ms;
  // NCCL's kernels of other communicators wait for other GPUs too, with up to kMaxNcclBlocks
  // blocks: both must fit, or two GPUs wait for each other's.
  options.max_blocks = kMaxBlocks;
  options.reserved_sms = kMaxNcclBlocks;
  options.retries_buffers = 1;  // over staging memory (offload.h)
  polypath_comm* comm = nullptr;
  const polypath_status status =
      api.comm_create(api.context, state.rank, state.size, gpu, &HostAllGather::gather_for,
                      &exchange, &options, &comm);
  if (status == POLYPATH_SUCCESS) {
    outcome.is_made = 1;
    outcome.policy = measured_policy(api, comm, state.size);
  } else {
    state.refusal = api.last_error();
  }
  const auto keep_nccl = [&](const char* why) {
    if (state.refusal.empty()) state.refusal = why;
    state.comm = nullptr;
    if (comm == nullptr) return kSuccess;
    auto* const gone = new Communicator;
    gone->engine = engine_;
    gone->comm = comm;
    destroy_in_background(gone);
    return kSuccess;
  };
  const auto give_up = [&] {
    if (comm != nullptr) api.comm_abort(comm, "NCCL failed");
    const int result = failed();
    keep_nccl(exchange.why().c_str());
    return result;
  };
  constexpr const char* kNotMade = "a rank could not make a communicator of polypath's";
  if (!exchange.gather(&outcome, outcomes.data(), sizeof outcome)) return give_up();
  if (!settle(outcomes, is_reproducible(records), state.policy)) return keep_nccl(kNotMade);
  // Its memory is taken by what follows.
  state.has_policy = !takes_any(state.policy);
  if (state.has_policy) return keep_nccl(kNothingFaster);
  if (api.comm_prepare(comm) != POLYPATH_SUCCESS) {
    outcome.is_made = 0;
    state.refusal = api.last_error();
    // It may have failed here alone, while the others wait for this rank.
    api.comm_abort(comm, state.refusal.c_str());
  }
  if (!exchange.gather(&outcome, outcomes.data(), sizeof outcome)) return give_up();
  Policy same;
  if (!settle(outcomes, false, same)) return keep_nccl(kNotMade);
  state.engine = engine_;
  state.comm = comm;
  state.context = context;
  state.context_id = buffers_.context_id();
  state.order = StreamOrder(context);
  return kSuccess;
}

GroupCreation::GroupCreation(std::vector<Creation>& creations) noexcept : creations_(creations) {
  if (creations.size() < 2) return;
  try {
    make_threads();
  } catch (const std::exception&) {  // no memory, or no more threads
    tell(Order::leave);
    for (Creation& creation : creations) creation.leave_with_nccl("a thread could not be made");
  }
}

GroupCreation::~GroupCreation() { tell(Order::leave); }

void GroupCreation::make_threads() {
  results_.resize(creations_.size(), kSuccess);
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::size_t>> by_key;
  for (std::size_t i = 0; i < creations_.size(); ++i) {
    const CommKey& key = creations_[i].key();
    by_key[{key.first, key.second}].push_back(i);
  }
  for (const auto& [key, indices] : by_key) {
    for (const std::size_t i : indices)
      threads_.push_back(make_thread([this, i, place = ranks_left_.size()] {
        order_.wait(Order::wait);
        if (order_ == Order::finish) results_[i] = finish_in_turn(creations_[i], place);
      }));
    ranks_left_.push_back(indices.size());
  }
}

int GroupCreation::finish_in_turn(Creation& creation, std::size_t place) noexcept {
  {
    std::unique_lock lock(turns_);
    turn_ended_.wait(lock, [&] { return place == 0 || ranks_left_[place - 1] == 0; });
  }
  const int result = creation.finish();
  const std::lock_guard lock(turns_);
  --ranks_left_[place];
  turn_ended_.notify_all();
  return result;
}

void GroupCreation::tell(Order order) noexcept {
  order_ = order;
  order_.notify_all();
  threads_.clear();  // joins them
}

int GroupCreation::finish() noexcept {
  if (!threads_.empty()) {
    tell(Order::finish);
    const auto failed = std::ranges::find_if(results_, [](int code) { return code != kSuccess; });
    return failed != results_.end() ? *failed : kSuccess;
  }
  int result = kSuccess;
  for (Creation& creation : creations_)
    if (const int code = creation.finish(); result == kSuccess) result = code;
  return result;
}

bool is_blocking(const Config* config, bool parent) noexcept {
  // NCCL's own variable is the last word.
  const char* const blocking = std::getenv("NCCL_COMM_BLOCKING");
  if (blocking != nullptr && *blocking != '\0') return std::strcmp(blocking, "0") != 0;
  const bool is_open = config == nullptr || config->blocking == kUndefined;
  return is_open ? parent : config->blocking != 0;
}

}  // namespace polypath::nccl
