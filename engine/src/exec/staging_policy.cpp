#include "exec/staging_policy.hpp"

#include <fmt/format.h>

#include "base/units.hpp"
#include "driver/context_guard.hpp"

namespace polypath {
namespace {

/// At most one part in this number of the free memory is taken.
constexpr std::uint64_t kPartsOfFree = 16;
/// What a context is taken to need before it is there and the driver can be asked: on H200s with
/// driver 580 four of them take 2143 MiB (bench/results/2026-11-22-4xh200-ground/held-calls.log).
constexpr std::uint64_t kContextBytes = 536 * kMiB;
/// A node of eight GPUs with two ranks each still has a context of each rank on each GPU.
constexpr int kMaxProcesses = 16;

}  // namespace

std::string_view to_string(StagingReason reason) noexcept {
  switch (reason) {
    case StagingReason::allowed: return "allowed";
    case StagingReason::exclusive:
      return "its compute mode is EXCLUSIVE_PROCESS, and this process has no context there";
    case StagingReason::prohibited: return "its compute mode is PROHIBITED";
    case StagingReason::little_memory: return "too little of its memory is free";
    case StagingReason::too_many_processes: return "too many processes have contexts there";
  }
  return "?";
}

StagingReason may_stage(const StagingFacts& facts, std::uint64_t bytes) noexcept {
  std::uint64_t needed = bytes;
  if (!facts.has_context) {
    if (facts.prohibited) return StagingReason::prohibited;
    if (facts.exclusive) return StagingReason::exclusive;
    if (facts.processes && *facts.processes >= kMaxProcesses)
      return StagingReason::too_many_processes;
    needed += kContextBytes;
  }
  if (needed != 0 && facts.free_bytes && needed > *facts.free_bytes / kPartsOfFree)
    return StagingReason::little_memory;
  return StagingReason::allowed;
}

StagingFacts staging_facts(const CudaDriver& driver, const Nvml* nvml, const Gpu& gpu, int index,
                           CUcontext context) {
  StagingFacts facts;
  facts.has_context = context != nullptr;
  int mode = CU_COMPUTEMODE_DEFAULT;
  POLYPATH_CHECK(driver, device_get_attribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, index));
  facts.exclusive = mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
  facts.prohibited = mode == CU_COMPUTEMODE_PROHIBITED;
  if (context != nullptr) {
    ContextGuard guard(driver);
    guard.use(context);
    std::size_t free = 0;
    std::size_t total = 0;
    POLYPATH_CHECK(driver, mem_get_info(&free, &total));
    facts.free_bytes = free;
    return facts;
  }
  nvmlDevice_t device = nullptr;
  if (nvml == nullptr || nvml->device_by_pci == nullptr ||
      nvml->device_by_pci(gpu.pci.c_str(), &device) != NVML_SUCCESS)
    return facts;
  nvmlMemory_t memory{};
  if (nvml->memory_info != nullptr && nvml->memory_info(device, &memory) == NVML_SUCCESS)
    facts.free_bytes = memory.free;
  unsigned int count = 0;
  if (nvml->compute_processes != nullptr) {
    // Asked for none of them, it says how many there are.
    const nvmlReturn_t result = nvml->compute_processes(device, &count, nullptr);
    if (result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE)
      facts.processes = static_cast<int>(count);
  }
  return facts;
}

StagingRefused::StagingRefused(int gpu, StagingReason reason)
    : DriverError(fmt::format("nothing is staged on GPU {}: {}", gpu, to_string(reason)),
                  static_cast<int>(CUDA_ERROR_NOT_PERMITTED)) {}

}  // namespace polypath
