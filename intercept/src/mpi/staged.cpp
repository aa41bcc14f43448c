#include "mpi/staged.hpp"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "cuda/engine.hpp"
#include "gate/text.hpp"
#include "mpi/memory.hpp"
#include "mpi/mpi_statistics.hpp"

namespace polypath::preload::mpi {
namespace {

/// Looks up addresses, of which many in a row lie in the same allocation, or page of the host.
class MemoryAt {
 public:
  /// The GPU as of gpu_of(), and the end of what is certain to be the same memory.
  struct Range {
    int gpu = -1;
    std::uintptr_t end = 0;
  };
  static constexpr std::uintptr_t kPage = 4096;
  Range find(std::uintptr_t address) noexcept {
    if (address >= begin_ && address < range_.end) return range_;
    const auto* const pointer = reinterpret_cast<const void*>(address);
    range_ = {gpu_of(pointer), (address / kPage + 1) * kPage};
    begin_ = address;
    CUdeviceptr start = 0;
    std::size_t bytes = 0;
    if (range_.gpu >= 0)
      range_.end = ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, pointer, &start) && start != 0 &&
                           ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, pointer, &bytes)
                       ? start + bytes
                       : UINTPTR_MAX;  // what the driver does not tell
    return range_;
  }

 private:
  std::uintptr_t begin_ = 1;
  Range range_{-1, 0};
};

/// Copies runs of bytes between host memory and wherever they lie. Runs on one GPU that have the
/// same length and distances are one copy of the driver's.
class RunCopies {
 public:
  explicit RunCopies(bool is_load) noexcept : is_load_(is_load) {}

  bool add(std::uintptr_t there, char* here, std::size_t bytes) noexcept {
    while (bytes > 0) {
      const MemoryAt::Range range = memory_.find(there);
      // Memory of the host does not end where a page does.
      const std::size_t part =
          range.gpu < 0 ? bytes : static_cast<std::size_t>(std::min(bytes, range.end - there));
      if (range.gpu < 0) {
        if (!flush()) return false;
        auto* const host = reinterpret_cast<char*>(there);
        std::memcpy(is_load_ ? here : host, is_load_ ? host : here, part);
      } else if (!joins(range.gpu, there, here, part)) {
        if (!flush()) return false;
        rows_ = {range.gpu, there, here, part, 1, 0, 0};
      }
      there += part;
      here += part;
      bytes -= part;
    }
    return true;
  }

  /// Makes the copies that are left.
  bool flush() noexcept {
    if (rows_.count == 0) return true;
    const Rows rows = rows_;
    rows_ = {};
    const PrimaryContext primary(rows.gpu);
    const InContext current(primary.get());
    if (primary.get() == nullptr || !current.is_there()) return false;
    CUresult result = CUDA_SUCCESS;
    if (rows.count > 1) {
      CUDA_MEMCPY2D shape{};
      shape.WidthInBytes = rows.bytes;
      shape.Height = rows.count;
      shape.srcMemoryType = is_load_ ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      shape.dstMemoryType = is_load_ ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      shape.srcDevice = shape.dstDevice = rows.there;
      shape.srcHost = shape.dstHost = rows.here;
      shape.srcPitch = is_load_ ? rows.pitch_there : rows.pitch_here;
      shape.dstPitch = is_load_ ? rows.pitch_here : rows.pitch_there;
      result =
          call_driver(Symbol::cuMemcpy2DUnaligned_v2, const_cast<const CUDA_MEMCPY2D*>(&shape));
    } else if (is_load_) {
      result = call_driver(Symbol::cuMemcpyDtoH_v2, static_cast<void*>(rows.here),
                           CUdeviceptr{rows.there}, rows.bytes);
    } else {
      result = call_driver(Symbol::cuMemcpyHtoD_v2, CUdeviceptr{rows.there},
                           const_cast<const void*>(static_cast<void*>(rows.here)), rows.bytes);
    }
    return result == CUDA_SUCCESS;
  }

 private:
  struct Rows {
    int gpu = -1;
    std::uintptr_t there = 0;
    char* here = nullptr;
    std::size_t bytes = 0;
    std::size_t count = 0;
    std::size_t pitch_there = 0;
    std::size_t pitch_here = 0;
  };
  /// Whether it is the next row of those that must be copied.
  bool joins(int gpu, std::uintptr_t there, char* here, std::size_t bytes) noexcept {
    constexpr std::size_t kMaxPitch = std::size_t{1} << 30;  // the driver: 2^31 - 1
    Rows& rows = rows_;
    if (rows.count == 0 || gpu != rows.gpu || bytes != rows.bytes || there < last_end_ ||
        here < rows.here) {
      last_begin_ = there;
      last_end_ = there + bytes;
      last_here_ = here;
      allocation_end_ = memory_.find(there).end;
      return false;
    }
    const std::size_t pitch_there = there - last_begin_;
    const auto pitch_here = static_cast<std::size_t>(here - last_here_);
    const bool is_same = rows.count == 1
                             ? pitch_there <= kMaxPitch && pitch_here <= kMaxPitch
                             : pitch_there == rows.pitch_there && pitch_here == rows.pitch_here;
    const bool is_next = is_same && there < allocation_end_;
    last_begin_ = there;
    last_end_ = there + bytes;
    last_here_ = here;
    if (!is_next) {
      allocation_end_ = memory_.find(there).end;
      return false;
    }
    rows.pitch_there = pitch_there;
    rows.pitch_here = pitch_here;
    ++rows.count;
    return true;
  }

  bool is_load_;
  MemoryAt memory_;
  Rows rows_;
  std::uintptr_t last_begin_ = 0;
  std::uintptr_t last_end_ = 0;
  char* last_here_ = nullptr;
  std::uintptr_t allocation_end_ = 0;
};

/// How often a buffer has the count of a call. A sum is scattered among the ranks of the own group;
/// all else that is of each rank is of each rank of the other group, where there is one.
struct Parts {
  std::int64_t sent;
  std::int64_t received;
};

Parts parts_of(const Call& call, const Sizes& sizes) noexcept {
  const std::int64_t own = sizes.size;
  const std::int64_t others = sizes.remote_size > 0 ? sizes.remote_size : sizes.size;
  switch (call.operation) {
    case Operation::all_reduce:
    case Operation::reduce:  // not offloaded for MPI
    case Operation::broadcast: return {1, 1};
    case Operation::reduce_scatter: return {own, call.in_place ? own : 1};
    case Operation::all_gather: return {1, others};
    case Operation::all_to_all: return {others, others};
  }
  return {1, 1};
}

int fail(const Call& call) noexcept {
  log_line(LogLevel::error, "%s: device memory could not be copied to host memory and back",
           kFunctionNames[static_cast<std::size_t>(call.function)]);
  library().comm_call_errhandler(call.comm, library().error_other);
  return library().error_other;
}

}  // namespace

Staged::Staged(const void* buffer, std::int64_t count, Handle type, Layout layout) noexcept
    : buffer_(reinterpret_cast<std::uintptr_t>(buffer)), count_(count), type_(type) {
  if (count <= 0 || !may_be_on_device()) return;
  map_.emplace(type);
  if (!find_ends()) return;
  is_needed_ = true;
  is_packed_ = layout == Layout::packed_where_gaps && !map_->is_contiguous() && map_->is_exact() &&
               make_packed_type();
  if (is_packed_) bytes_ = map_->bytes() * static_cast<std::size_t>(count);
  memory_ = static_cast<char*>(std::malloc(bytes_));
}

Staged::~Staged() {
  std::free(memory_);
  if (is_packed_) library().type_free(&packed_);
}

template <typename See>
bool Staged::each_run(See&& see) const noexcept {
  if (map_->is_contiguous())
    return see(Run{map_->begin()->offset, map_->bytes() * static_cast<std::size_t>(count_)});
  std::intptr_t element = 0;
  for (std::int64_t i = 0; i < count_; ++i, element += map_->extent())
    for (const Run& run : *map_)
      if (!see(Run{element + run.offset, run.bytes})) return false;
  return true;
}

// The map of a type may have a million runs, and making it takes milliseconds. A look at each page
// takes less, unless few bytes of a page belong to the type. Where many pages follow each other,
// one of 16 is looked at, and the last: MPI wants what is not at MPI_BOTTOM to be one array.
bool Staged::may_be_on_device() const noexcept {
  constexpr std::int64_t kMinBytesPerPage = 256;
  constexpr std::int64_t kFewPages = 16;
  constexpr std::uintptr_t kStep = 16 * MemoryAt::kPage;
  const Library& mpi = library();
  std::intptr_t low = 0;
  std::intptr_t extent = 0;
  std::intptr_t true_low = 0;
  std::intptr_t true_extent = 0;
  std::int64_t size = 0;
  std::intptr_t last = 0;
  if (find_datatype(type_) != nullptr || type_ == mpi.datatype_null ||
      mpi.type_get_extent(type_, &low, &extent) != kSuccess ||
      mpi.type_get_true_extent(type_, &true_low, &true_extent) != kSuccess ||
      mpi.type_size(type_, &size) != kSuccess || __builtin_mul_overflow(count_ - 1, extent, &last))
    return true;
  const std::uintptr_t begin =
      buffer_ + static_cast<std::uintptr_t>(true_low + std::min<std::intptr_t>(last, 0));
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(true_extent + std::abs(last));
  const auto pages = static_cast<std::int64_t>((end - begin) / MemoryAt::kPage);
  if (pages > kFewPages && size * count_ / pages < kMinBytesPerPage) return true;
  MemoryAt memory;
  const bool is_array = pages > kFewPages && buffer_ != 0;
  for (std::uintptr_t at = begin; at < end;) {
    const MemoryAt::Range range = memory.find(at);
    if (range.gpu >= 0) return true;
    at = is_array ? at + kStep : range.end;
  }
  return end > begin && memory.find(end - 1).gpu >= 0;
}

/// What the argument spans, and whether device memory is in it.
bool Staged::find_ends() noexcept {
  MemoryAt memory;
  bool is_any = false;
  std::intptr_t low = INTPTR_MAX;
  std::intptr_t high = INTPTR_MIN;
  each_run([&](const Run& run) {
    const std::uintptr_t first = buffer_ + static_cast<std::uintptr_t>(run.offset);
    is_any = is_any || memory.find(first).gpu >= 0;
    low = std::min(low, run.offset);
    high = std::max(high, run.offset + static_cast<std::intptr_t>(run.bytes));
    return true;
  });
  low_ = low;
  bytes_ = is_any ? static_cast<std::size_t>(high - low) : 0;
  return is_any;
}

bool Staged::make_packed_type() noexcept {
  const Library& mpi = library();
  return map_->bytes() <= INT_MAX &&
         mpi.type_contiguous(static_cast<int>(map_->bytes()), mpi.byte, &packed_) == kSuccess &&
         mpi.type_commit(&packed_) == kSuccess;
}

bool Staged::copy(bool is_load) noexcept {
  RunCopies copies(is_load);
  char* packed = memory_;
  return each_run([&](const Run& run) {
           char* const here = is_packed_ ? packed : memory_ + (run.offset - low_);
           packed += run.bytes;
           return copies.add(buffer_ + static_cast<std::uintptr_t>(run.offset), here, run.bytes);
         }) &&
         copies.flush();
}

void* Staged::address() const noexcept {
  if (!is_needed_) return reinterpret_cast<void*>(buffer_);
  return is_packed_ ? memory_ : memory_ - low_;
}

int call_mpi(const Call& call, const Sizes& sizes) noexcept {
  if (library().takes_device_memory || driver_library() == nullptr) return call_original(call);
  const bool is_inter = sizes.remote_size > 0;
  const bool is_broadcast = call.operation == Operation::broadcast;
  const bool is_one = call.in_place || is_broadcast;
  const bool is_root = is_broadcast && call.root == (is_inter ? library().root : sizes.rank);
  // MPI_PROC_NULL, next to a root: nothing is looked at.
  const bool is_idle = is_broadcast && is_inter && call.root < 0 && !is_root;
  const Parts parts = parts_of(call, sizes);
  // A combining function of the program gets the datatype, and looks at its layout.
  const auto layout =
      combines(call.operation) ? Staged::Layout::as_given : Staged::Layout::packed_where_gaps;
  // MPI does not look at the type of what is in place.
  Staged send(call.send, is_one ? 0 : call.send_count * parts.sent, call.send_type, layout);
  Staged recv(call.recv, is_idle ? 0 : call.recv_count * parts.received, call.recv_type, layout);
  if (!send.is_needed() && !recv.is_needed()) return call_original(call);
  const bool is_read = call.in_place || is_root;
  if (!send.is_there() || !recv.is_there() || !send.load() || !recv.load(is_read))
    return fail(call);
  count_staged(call.function);
  Call staged = call;
  if (send.is_needed()) staged.send_type = send.type();
  if (recv.is_needed()) staged.recv_type = recv.type();
  const int result = call_original(staged, is_one ? call.send : send.address(), recv.address());
  if (result == kSuccess && !is_root && !recv.store()) return fail(call);
  return result;
}

}  // namespace polypath::preload::mpi
