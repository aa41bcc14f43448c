#include "messaging/matching.hpp"

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>

#include "driver/check.hpp"

namespace polypath {
namespace {

constexpr unsigned kBlocksOfAMultiprocessor = 8;

unsigned whole_warps(std::uint32_t threads) { return std::max(32U, (threads + 31) / 32 * 32); }

unsigned device_attribute(const CudaDriver& driver, CUdevice_attribute attribute) {
  CUdevice device = 0;
  int value = 0;
  POLYPATH_CHECK(driver, ctx_get_device(&device));
  POLYPATH_CHECK(driver, device_get_attribute(&value, attribute, device));
  return static_cast<unsigned>(value);
}

/// Blocks per SM; 0: the driver does not say.
unsigned blocks_at_once(const CudaDriver& driver, CUfunction kernel, unsigned threads,
                        std::size_t shared_bytes) {
  int blocks = 0;
  if (driver.occupancy_max_active_blocks != nullptr)
    POLYPATH_CHECK(driver, occupancy_max_active_blocks(&blocks, kernel, static_cast<int>(threads),
                                                       shared_bytes));
  return static_cast<unsigned>(std::max(0, blocks));
}

std::uint64_t random_seed() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

/// Parts of one allocation; without one it counts bytes.
class Parts {
 public:
  explicit Parts(CUdeviceptr from) : from_(from) {}
  template <typename T>
  T* take(std::uint64_t count) {
    T* const at = reinterpret_cast<T*>(from_ + bytes_);
    bytes_ += (count * sizeof(T) + 255) / 256 * 256;
    return at;
  }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  CUdeviceptr from_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Matching::Matching(Communicator& communicator, const MatchKernels& order, std::uint32_t capacity,
                   bool launch_per_phase)
    : driver_(communicator.driver()),
      context_(communicator.context()),
      order_(order),
      capacity_(capacity),
      seed_(random_seed()) {
  if (capacity == 0 || capacity > order_.max_capacity)
    throw InvalidArgument("options->capacity is not 1 to " + std::to_string(order_.max_capacity));
  const CurrentContext current(driver_, context_);
  module_ = KernelModule::load(driver_, context_, order_.image);
  carry_ = KernelModule::load(driver_, context_, carry_image());
  queues_ = module_->function(order_.queues);
  many_ = module_->function(order_.many);
  grid_ = module_->function(order_.grid);
  outcome_ = module_->function(order_.outcome);
  append_ = carry_->function(kAppendKernel);
  keep_ = carry_->function(kKeepKernel);
  if (driver_.func_set_attribute == nullptr ||
      device_attribute(driver_, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) <
          order_.queue_bytes)
    throw NotSupported("matching needs a GPU whose blocks may have " +
                       std::to_string(order_.queue_bytes) + " bytes of shared memory");
  for (const CUfunction kernel : {queues_, many_})
    POLYPATH_CHECK(driver_,
                   func_set_attribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                      static_cast<int>(order_.queue_bytes)));
  knows_early_ = supports_pdl(driver_);
  multiprocessors_ = device_attribute(driver_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  queues_at_once_ =
      multiprocessors_ *
      std::max(1U, blocks_at_once(driver_, many_, order_.threads_of_many, order_.queue_bytes));
  if (!launch_per_phase && order_.together != nullptr && driver_.launch_kernel_ex != nullptr &&
      device_attribute(driver_, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0) {
    together_ = module_->function(order_.together);
    // One each: with two their meetings last longer than they gain.
    if (blocks_at_once(driver_, together_, kMatchTogetherThreads, 0) > 0)
      blocks_together_ = multiprocessors_;
  }

  const auto cut = [&](CUdeviceptr from) {
    Parts parts(from);
    state_ = parts.take<MatchState>(1);
    buffers_.messages = parts.take<device::envelope>(capacity_);
    buffers_.receives = parts.take<device::envelope>(capacity_);
    buffers_.message_numbers = parts.take<std::uint64_t>(capacity_);
    buffers_.receive_numbers = parts.take<std::uint64_t>(capacity_);
    buffers_.matched_message = parts.take<std::uint32_t>(capacity_);
    buffers_.matched_receive = parts.take<std::uint32_t>(capacity_);
    workspace_ =
        parts.take<unsigned char>(capacity_ > kMaxPerQueue ? order_.workspace_bytes(capacity_) : 0);
    return parts.bytes();
  };
  const std::uint64_t bytes = cut(0);
  order_of_calls_ = std::make_unique<CallOrder>(driver_, context_);
  const Stream stream(driver_, context_);
  POLYPATH_CHECK(driver_, mem_alloc(&memory_, bytes));
  cut(memory_);
  try {
    POLYPATH_CHECK(driver_, memset_d8_async(memory_, 0, sizeof(MatchState), stream.get()));
    POLYPATH_CHECK(driver_, stream_synchronize(stream.get()));
  } catch (...) {
    POLYPATH_WARN(driver_, mem_free(memory_));
    throw;
  }
}

Matching::~Matching() {
  const CurrentContext current(driver_, context_, std::nothrow);
  if (const CUevent latest = order_of_calls_->latest(); latest != nullptr)
    POLYPATH_WARN(driver_, event_synchronize(latest));
  POLYPATH_WARN(driver_, mem_free(memory_));
}

template <typename Issue>
void Matching::in_order(CUstream stream, Issue&& issue) {
  const CurrentContext current(driver_, context_);
  const std::uint64_t capture = order_of_calls_->capture_of(stream);
  order_of_calls_->before(stream, capture);
  launches_early_ = knows_early_ && capture == 0;
  issue();
  ++counts_.batches;
  order_of_calls_->behind(stream, capture);
}

template <typename... Parameters>
void Matching::launch(CUfunction kernel, const LaunchShape& shape, CUstream stream,
                      Parameters... parameters) {
  void* all[] = {&parameters...};
  ++counts_.launches;
  launch_pdl(driver_, launches_early_, kernel, shape, stream, all);
}

void Matching::launch_together(unsigned blocks, CUstream stream, MatchGridArgs& args) {
  CUlaunchAttribute together{};
  together.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  together.value.cooperative = 1;
  void* parameters[] = {&args};
  ++counts_.launches;
  launch_with(driver_, together, together_, {blocks, kMatchTogetherThreads}, stream, parameters);
}

void Matching::issue_one(device::match_batch batch, bool uses_leftovers,
                         device::match_outcome* outcome, CUstream stream) {
  batch.seed = seed_;
  // The host knows only the capacity for what is carried over.
  const std::uint32_t most =
      uses_leftovers ? capacity_ : std::max(batch.message_count, batch.receive_count);
  if (most <= kMaxPerQueue) {
    const MatchQueuesArgs args{
        batch,          nullptr, nullptr, 1,     std::min(capacity_, kMaxPerQueue),
        uses_leftovers, 0,       outcome, state_};
    return launch(queues_, {1, std::min(whole_warps(most), kMatchThreads), order_.queue_bytes},
                  stream, args);
  }
  MatchGridArgs args{batch, workspace_, capacity_, uses_leftovers, outcome, state_};
  const auto blocks_of = [&](unsigned threads) { return (2 * most + threads - 1) / threads; };
  if (blocks_together_ > 0)
    return launch_together(std::min(blocks_of(kMatchTogetherThreads), blocks_together_), stream,
                           args);
  const unsigned blocks =
      std::min(blocks_of(kMatchGridThreads), multiprocessors_ * kBlocksOfAMultiprocessor);
  for (std::uint32_t phase = 0; phase < order_.phases; ++phase) {
    const bool by_one = order_.runs_in_one_warp(phase);
    launch(grid_, {by_one ? 1 : blocks, by_one ? 32 : kMatchGridThreads}, stream, args, phase);
  }
  launch(outcome_, {1, 32}, stream, args);
}

void Matching::match(const device::match_batch& batch, device::match_outcome* outcome,
                     CUstream stream) {
  in_order(stream, [&] { issue_one(batch, false, outcome, stream); });
  ++counts_.queues;
  counts_.messages += batch.message_count;
  counts_.receives += batch.receive_count;
}

void Matching::match_many(const QueueBatch& queues, device::match_batch arrays,
                          device::match_outcome* outcomes, CUstream stream) {
  arrays.seed = seed_;
  const MatchQueuesArgs args{arrays,
                             queues.message_begins,
                             queues.receive_begins,
                             queues.queues,
                             std::min(capacity_, kMaxPerQueue),
                             0,
                             0,
                             outcomes,
                             state_};
  in_order(stream, [&] {
    if (queues.queues > 0)
      launch(many_,
             {std::min(queues.queues, queues_at_once_), order_.threads_of_many, order_.queue_bytes},
             stream, args);
  });
  counts_.queues += queues.queues;
}

void Matching::match_next(const device::match_batch& added, device::match_pair* pairs,
                          device::match_outcome* outcome, CUstream stream) {
  const MatchCarryArgs args{
      state_,    buffers_, added.messages, added.receives, added.message_count, added.receive_count,
      capacity_, 0,        pairs,          outcome};
  const device::match_batch batch{
      buffers_.messages,       0, 0, buffers_.receives, buffers_.matched_message,
      buffers_.matched_receive};
  in_order(stream, [&] {
    const std::uint32_t most = std::max(added.message_count, added.receive_count);
    launch(append_,
           {std::clamp((most + kMatchGridThreads - 1) / kMatchGridThreads, 1U, multiprocessors_),
            kMatchGridThreads},
           stream, args);
    issue_one(batch, true, &state_->outcome, stream);
    launch(keep_, {1, std::min(whole_warps(capacity_), kMatchThreads)}, stream, args);
  });
  ++counts_.queues;
  counts_.messages += added.message_count;
  counts_.receives += added.receive_count;
}

void Matching::reset(CUstream stream) {
  in_order(stream, [&] {
    POLYPATH_CHECK(driver_, memset_d8_async(reinterpret_cast<CUdeviceptr>(state_), 0,
                                            offsetof(MatchState, outcome), stream));
  });
  --counts_.batches;
}

MatchState Matching::state() {
  const CurrentContext current(driver_, context_);
  if (const CUevent latest = order_of_calls_->latest(); latest != nullptr)
    POLYPATH_CHECK(driver_, event_synchronize(latest));
  MatchState state{};
  POLYPATH_CHECK(driver_, memcpy_sync(reinterpret_cast<CUdeviceptr>(&state),
                                      reinterpret_cast<CUdeviceptr>(state_), sizeof state));
  return state;
}

}  // namespace polypath
