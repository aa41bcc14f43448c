#include "exec/imported_memory.hpp"

#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"

namespace polypath {
namespace {

bool same(const CUipcMemHandle& a, const CUipcMemHandle& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

unsigned long long unnumbered_buffer() noexcept {
  // The driver's own numbers count from 1.
  static std::atomic<unsigned long long> last{1ull << 63};
  return ++last;
}

// ---- one --------------------------------------------------------------------

ImportedMemory::ImportedMemory(const CUipcMemHandle& handle, CUdeviceptr start, std::uint64_t bytes,
                               int holder, CUcontext context, unsigned long long allocation)
    : handle_(handle),
      start_(start),
      bytes_(bytes),
      holder_(holder),
      context_(context),
      allocation_(allocation),
      buffer_(unnumbered_buffer()) {}

std::optional<CUdeviceptr> ImportedMemory::address_in(int gpu, CUcontext context,
                                                      CUdeviceptr address) {
  if (context == context_) return address;
  const std::lock_guard lock(mutex_);
  const auto own = addresses_.find(gpu);
  if (own == addresses_.end()) return std::nullopt;
  return own->second + (address - start_);
}

bool ImportedMemory::failed(int gpu) {
  const std::lock_guard lock(mutex_);
  return failed_.contains(gpu);
}

bool ImportedMemory::may_import(int gpu) {
  const std::lock_guard lock(mutex_);
  const auto known = failed_.find(gpu);
  return known == failed_.end() || known->second.due();
}

// ---- all --------------------------------------------------------------------

ImportedMemories::ImportedMemories(std::shared_ptr<const CudaDriver> driver, Devices& devices)
    : driver_(std::move(driver)), devices_(devices) {}

ImportedMemories::~ImportedMemories() {
  for (auto& [start, memory] : open_) close_imports(*memory);
}

void ImportedMemories::opened(const CUipcMemHandle& handle, CUdeviceptr start, std::uint64_t bytes,
                              int holder, CUcontext context, unsigned long long allocation) {
  std::shared_ptr<ImportedMemory> gone;
  {
    const std::lock_guard lock(mutex_);
    auto& known = open_[start];
    if (known != nullptr && same(known->handle_, handle) && known->context_ == context &&
        known->allocation_ == allocation) {
      ++known->opened_;
      return;
    }
    gone = std::exchange(
        known, std::make_shared<ImportedMemory>(handle, start, bytes, holder, context, allocation));
    any_ = true;
  }
  tell(start, bytes, holder, context);
  // Something else was at this address: it was closed without our knowledge.
  if (gone != nullptr) close_imports(*gone);
}

void ImportedMemories::tell(CUdeviceptr start, std::uint64_t bytes, int holder,
                            CUcontext context) const {
  if (driver_->memory_imported != nullptr) driver_->memory_imported(start, bytes, holder, context);
}

void ImportedMemories::closed(CUdeviceptr start) {
  std::shared_ptr<ImportedMemory> last;
  {
    const std::lock_guard lock(mutex_);
    const auto known = open_.find(start);
    if (known == open_.end() || --known->second->opened_ > 0) return;
    last = std::move(known->second);
    open_.erase(known);
    any_ = !open_.empty();
  }
  close_imports(*last);
}

std::shared_ptr<ImportedMemory> ImportedMemories::find(CUdeviceptr address,
                                                       unsigned long long allocation) {
  if (!any_) return nullptr;
  const std::lock_guard lock(mutex_);
  auto after = open_.upper_bound(address);
  if (after == open_.begin()) return nullptr;
  const auto& memory = std::prev(after)->second;
  const bool is_inside = address - memory->start() < memory->bytes();
  return is_inside && memory->allocation() == allocation ? memory : nullptr;
}

void ImportedMemories::import_into(ImportedMemory& memory, int gpu) {
  const CUcontext context = devices_.context(gpu);
  if (context == memory.context()) return;
  const std::lock_guard opening(memory.opening_);
  {
    const std::lock_guard lock(memory.mutex_);
    if (memory.closed_ || memory.addresses_.contains(gpu)) return;
  }
  try {
    if (driver_->ipc_open_mem_handle == nullptr || driver_->ipc_close_mem_handle == nullptr)
      throw DriverError("the driver has no CUDA IPC", static_cast<int>(CUDA_ERROR_NOT_SUPPORTED));
    ContextGuard guard(*driver_);
    guard.use(context);
    CUdeviceptr address = 0;
    POLYPATH_CHECK(*driver_, ipc_open_mem_handle(&address, memory.handle_,
                                                 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    try {
      tell(address, memory.bytes(), memory.holder(), context);
      const std::lock_guard lock(memory.mutex_);
      memory.addresses_.emplace(gpu, address);
      memory.failed_.erase(gpu);
    } catch (...) {
      POLYPATH_WARN(*driver_, ipc_close_mem_handle(address));
      throw;
    }
  } catch (const DriverError&) {
    const std::lock_guard lock(memory.mutex_);
    if (const auto [known, is_new] = memory.failed_.try_emplace(gpu); !is_new)
      known->second.failed();
    throw;
  }
}

void ImportedMemories::close_imports(ImportedMemory& memory) {
  const std::lock_guard opening(memory.opening_);
  std::map<int, CUdeviceptr> addresses;
  {
    const std::lock_guard lock(memory.mutex_);
    memory.closed_ = true;
    addresses.swap(memory.addresses_);
  }
  if (addresses.empty()) return;
  try {
    ContextGuard guard(*driver_);
    for (const auto& [gpu, address] : addresses) {
      if (!devices_.alive(gpu)) continue;
      guard.use(devices_.context(gpu));
      POLYPATH_WARN(*driver_, ipc_close_mem_handle(address));
    }
  } catch (const DriverError& error) {
    log_message(level_of_result(error.code()),
                fmt::format("memory of another process was not closed: {}", error.what()));
  }
}

}  // namespace polypath
