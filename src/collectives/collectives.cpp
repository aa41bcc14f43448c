#include "collectives/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "exec/context_guard.hpp"

namespace polypath {
namespace {

/// Plans that are kept; a program with more shapes than that plans them again.
constexpr std::size_t kMostShapes = 4096;

/// Of each ring of a channel: with two a sender waits for each tile to be taken (a quarter of the
/// bandwidth, 2 x H200); a longer lag gains nothing.
constexpr std::uint32_t kSlots = 4;
constexpr std::uint8_t kLag = 1;
constexpr std::uint32_t kSlotBytes = 64 * kKiB;
constexpr std::uint32_t kCellBytes = 3 * kMiB / 2;

/// A capture that the driver does not number.
constexpr std::uint64_t kUnknownCapture = ~std::uint64_t{0};

std::uint64_t bytes_of(const CollectiveCall& call) { return call.count * size_of(call.type); }

bool sends(const CollectiveCall& call, int rank) {
  return call.op != CollectiveOp::broadcast || rank == call.root;
}
bool receives(const CollectiveCall& call, int rank) {
  return call.op != CollectiveOp::reduce || rank == call.root;
}
bool has_root(CollectiveOp op) {
  return op == CollectiveOp::broadcast || op == CollectiveOp::reduce;
}

std::uint64_t parts_sent(const CollectiveCall& call, int size) {
  const bool all = call.op == CollectiveOp::reduce_scatter || call.op == CollectiveOp::all_to_all;
  return all ? static_cast<std::uint64_t>(size) : 1;
}
std::uint64_t parts_received(const CollectiveCall& call, int size) {
  const bool all = call.op == CollectiveOp::all_gather || call.op == CollectiveOp::all_to_all;
  return all ? static_cast<std::uint64_t>(size) : 1;
}

}  // namespace

std::size_t Collectives::ShapeHash::operator()(const Shape& shape) const noexcept {
  const auto small = static_cast<std::uint64_t>(shape.root) << 16 |
                     static_cast<std::uint64_t>(shape.op) << 8 |
                     static_cast<std::uint64_t>(shape.type);
  return (shape.count ^ small << 40) * 0x9e3779b97f4a7c15;
}

Collectives::Collectives(Communicator& communicator, const CollectivesOptions& options)
    : comm_(communicator), options_(options) {
  if (comm_.size() > static_cast<int>(kMostRanks))
    throw NotSupported(fmt::format("collectives serve up to {} ranks of a node, not {}", kMostRanks,
                                   comm_.size()));
  // What one rank cannot, none can: each says how many blocks it can run, or why none.
  struct Able {
    std::int32_t blocks = 0;
    std::array<char, 252> why{};
  };
  Able mine;
  ContextGuard guard(comm_.driver());
  guard.use(comm_.context());
  try {
    modules_ = std::make_unique<KernelModules>(comm_.driver(), comm_.context());
    int multiprocessors = 0;
    POLYPATH_CHECK(comm_.driver(),
                   device_get_attribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                        comm_.gpu()));
    grant_ = std::make_unique<BlockGrant>(comm_.context(),
                                          multiprocessors * modules_->blocks_a_multiprocessor(),
                                          options_.max_blocks);
    last_ = std::make_unique<Event>(comm_.driver(), comm_.context(), CU_EVENT_DISABLE_TIMING);
    last_captured_ =
        std::make_unique<Event>(comm_.driver(), comm_.context(), CU_EVENT_DISABLE_TIMING);
    mine.blocks = grant_->blocks();
  } catch (const std::exception& error) {
    std::strncpy(mine.why.data(), error.what(), mine.why.size() - 1);
  }
  std::vector<Able> all(static_cast<std::size_t>(comm_.size()));
  comm_.exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  int blocks = options_.max_blocks;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].blocks < 1)
      throw NotSupported(fmt::format("rank {}: {}", rank, all[rank].why.data()));
    blocks = std::min(blocks, all[rank].blocks);
  }
  grant_->keep(blocks);
  shape_ = {static_cast<std::uint32_t>(comm_.size()), static_cast<std::uint32_t>(blocks), kSlots,
            kSlotBytes, kCellBytes};
  if (comm_.size() > 1) scratch_ = comm_.alloc(polypath::scratch_bytes(shape_));
}

Collectives::~Collectives() = default;  // the communicator frees the scratch

const CollectivePlan& Collectives::plan(const CollectiveCall& call) {
  validate(call);
  return launch_of(call).plan;
}

const Collectives::Launch& Collectives::launch_of(const CollectiveCall& call) {
  const Shape shape{call.count, call.op, call.type, has_root(call.op) ? call.root : 0};
  if (const auto known = launches_.find(shape); known != launches_.end()) return known->second;
  if (launches_.size() >= kMostShapes) launches_.clear();
  return launches_.emplace(shape, make_launch(call)).first->second;
}

Collectives::Launch Collectives::make_launch(const CollectiveCall& call) const {
  CollectiveRequest request;
  request.op = call.op;
  request.type = call.type;
  request.operation = call.operation;
  request.count = call.count;
  request.root = has_root(call.op) ? call.root : 0;
  for (int rank = 0; rank < comm_.size(); ++rank) request.gpus.push_back(comm_.gpu_of(rank));
  CollectiveOptions options;
  options.max_blocks = grant_->blocks();

  Launch launch;
  launch.plan = plan_collective(comm_.node(), request, options);
  if (launch.plan.algorithm != Algorithm::none && !runs_by_kernels(launch.plan.algorithm)) {
    options.algorithm = Algorithm::flat;
    launch.plan = plan_collective(comm_.node(), request, options);
  }
  KernelPlan kernel = launch.plan.kernel.value_or(KernelPlan{1, kSlotBytes, 1});
  if (launch.plan.algorithm == Algorithm::cells &&
      call.count > most_by_cells(shape_, call.op, call.type, kernel.stages)) {
    options.algorithm = Algorithm::flat;  // more than the scratch holds
    launch.plan = plan_collective(comm_.node(), request, options);
    kernel = launch.plan.kernel.value();
  }
  launch.family =
      launch.plan.algorithm == Algorithm::cells ? KernelFamily::cells : KernelFamily::channels;
  launch.blocks = static_cast<unsigned>(std::clamp(kernel.blocks, 1, grant_->blocks()));

  CollectiveArgs& args = launch.args;
  args.op = call.op;
  args.type = call.type;
  args.rank = static_cast<std::uint8_t>(comm_.rank());
  args.root = static_cast<std::uint8_t>(request.root);
  args.stages = static_cast<std::uint8_t>(kernel.stages);
  args.lag = kLag;
  args.tile_bytes = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(kernel.slot_bytes, kScratchGranule, kSlotBytes));
  args.count = call.count;
  args.shape = shape_;
  for (int rank = 0; rank < comm_.size() && scratch_; ++rank)
    args.scratch[rank] = std::bit_cast<unsigned char*>(scratch_.address(rank));
  return launch;
}

void Collectives::require_buffer(const char* name, CUdeviceptr address, std::uint64_t bytes,
                                 std::size_t element) const {
  if (address == 0) throw InvalidArgument(fmt::format("rank {}: {} is null", comm_.rank(), name));
  if (address % element != 0)
    throw InvalidArgument(fmt::format("rank {}: {} is not aligned to its elements of {} bytes",
                                      comm_.rank(), name, element));
  CUmemorytype type{};
  unsigned managed = 0;
  CUdeviceptr start = 0;
  std::size_t size = 0;
  std::array attributes{CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, 4> values{&type, &managed, &start, &size};
  POLYPATH_CHECK(comm_.driver(), pointer_get_attributes(attributes.size(), attributes.data(),
                                                        values.data(), address));
  if (type != CU_MEMORYTYPE_DEVICE && managed == 0)
    throw InvalidArgument(fmt::format("rank {}: {} is no memory of a GPU", comm_.rank(), name));
  if (start != 0 && address - start + bytes > size)
    throw InvalidArgument(fmt::format("rank {}: {} has {} bytes to its end, and {} are needed",
                                      comm_.rank(), name, size - (address - start), bytes));
}

void Collectives::validate(const CollectiveCall& call) const {
  if (has_root(call.op) && (call.root < 0 || call.root >= comm_.size()))
    throw InvalidArgument(
        fmt::format("rank {}: root {} is none of {} ranks", comm_.rank(), call.root, comm_.size()));
}

void Collectives::compare(const CollectiveCall& call) {
  const std::array<std::uint64_t, 5> mine{
      static_cast<std::uint64_t>(call.op), static_cast<std::uint64_t>(call.type), call.count,
      combines(call.op) ? static_cast<std::uint64_t>(call.operation) : 0,
      has_root(call.op) ? static_cast<std::uint64_t>(call.root) : 0};
  constexpr std::array names{"operation", "type", "count", "operator", "root"};
  std::vector<std::array<std::uint64_t, 5>> all(static_cast<std::size_t>(comm_.size()));
  comm_.exchange(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (std::size_t field = 0; field < names.size(); ++field)
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (all[rank][field] != all[0][field])
        throw InvalidArgument(
            fmt::format("call {}: the {} of rank {} ({}) is not that of rank 0 ({})", number_,
                        names[field], rank, all[rank][field], all[0][field]));
}

std::uint64_t Collectives::capture_of(CUstream stream) const {
  const CudaDriver& driver = comm_.driver();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  if (driver.stream_get_capture_info != nullptr) {
    POLYPATH_CHECK(driver, stream_get_capture_info(stream, &status, &number, nullptr, nullptr,
                                                   nullptr, nullptr));
  } else if (driver.stream_is_capturing != nullptr) {
    POLYPATH_CHECK(driver, stream_is_capturing(stream, &status));
    number = kUnknownCapture;
  }
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? number : 0;
}

void Collectives::run(const CollectiveCall& call, CUstream stream) {
  comm_.check();
  validate(call);
  const int rank = comm_.rank();
  const int size = comm_.size();
  const std::size_t element = size_of(call.type);
  if (call.count > 0) {
    if (sends(call, rank))
      require_buffer("send", call.send, bytes_of(call) * parts_sent(call, size), element);
    if (receives(call, rank))
      require_buffer("recv", call.recv, bytes_of(call) * parts_received(call, size), element);
  }
  if (options_.check) compare(call);
  ++number_;
  if (call.count == 0) return;

  const CudaDriver& driver = comm_.driver();
  ContextGuard guard(driver);
  guard.use(comm_.context());
  if (size == 1) {
    ++counts_.copies;
    if (call.send != call.recv)
      POLYPATH_CHECK(driver, memcpy_async(call.recv, call.send, bytes_of(call), stream));
    return;
  }
  const Launch& launch = launch_of(call);
  CollectiveArgs args = launch.args;
  args.reduction = call.operation;
  args.in = std::bit_cast<const void*>(call.send);
  args.out = std::bit_cast<void*>(call.recv);
  args.patience = comm_.patience();
  args.patience.kernel = number_;
  void* parameters[] = {&args};

  const std::uint64_t capture = capture_of(stream);
  Event& before = capture != 0 ? *last_captured_ : *last_;
  if (capture == 0 ? any_ : capture == capture_ && capture != kUnknownCapture)
    POLYPATH_CHECK(driver, stream_wait_event(stream, before.get(), 0));
  POLYPATH_CHECK(
      driver, launch_kernel(modules_->function(launch.family, call.op, call.type), launch.blocks, 1,
                            1, kCollectiveThreads, 1, 1, 0, stream, parameters, nullptr));
  POLYPATH_CHECK(driver, event_record(before.get(), stream));
  if (capture != 0)
    capture_ = capture;
  else
    any_ = true;
  ++(launch.family == KernelFamily::cells ? counts_.cells : counts_.channels);
}

}  // namespace polypath
