#include "core/shared_mappings.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "base/log.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {

std::optional<AddressRange> mapping_at(const CudaDriver& driver, CUdeviceptr address) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  std::array attributes{CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
  std::array<void*, attributes.size()> values{&base, &size};
  const bool is_told =
      driver.pointer_get_attributes(static_cast<unsigned int>(attributes.size()), attributes.data(),
                                    values.data(), address) == CUDA_SUCCESS &&
      base <= address && address - base < size;
  if (!is_told) return std::nullopt;
  return AddressRange{base, base + size};
}

CUmemAccess_flags mapping_access(const CudaDriver& driver, CUdeviceptr address, int gpu) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = gpu;
  unsigned long long access = 0;
  if (driver.mem_get_access == nullptr ||
      driver.mem_get_access(&access, &location, address) != CUDA_SUCCESS)
    return CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return static_cast<CUmemAccess_flags>(access);
}

double SharedMappings::cost_us(std::uint64_t mapping_bytes) noexcept {
  constexpr double kMappingUs = 42;
  constexpr std::uint64_t kSmallMapping = 20 * kMiB;
  constexpr double kUsPerMiB = 8.4;  // beyond those
  if (mapping_bytes <= kSmallMapping) return kMappingUs;
  return kMappingUs +
         kUsPerMiB * static_cast<double>(mapping_bytes - kSmallMapping) / static_cast<double>(kMiB);
}

void SharedMappings::add(CUdeviceptr address, std::uint64_t bytes) {
  if (!is_on_ || bytes == 0) return;
  const std::lock_guard lock(mutex_);
  AddressRange added{address, address + bytes};
  cut(added.begin, added.end);
  const auto after = ranges_.find(added.end);
  if (after != ranges_.end()) {
    added.end = after->second;
    ranges_.erase(after);
  }
  const auto next = ranges_.lower_bound(added.begin);
  if (next != ranges_.begin() && std::prev(next)->second == added.begin)
    std::prev(next)->second = added.end;
  else
    ranges_.emplace(added.begin, added.end);
}

void SharedMappings::remove(CUdeviceptr address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  cut(address, address + bytes);
}

void SharedMappings::cut(CUdeviceptr begin, CUdeviceptr end) {
  auto at = ranges_.lower_bound(begin);
  if (at != ranges_.begin() && std::prev(at)->second > begin) --at;
  while (at != ranges_.end() && at->first < end) {
    const auto [first, last] = *at;
    at = ranges_.erase(at);
    if (first < begin) ranges_.emplace(first, begin);
    if (last > end) ranges_.emplace(end, last);
  }
  refusals_.erase(refusals_.lower_bound({begin, 0}), refusals_.lower_bound({end, 0}));
  missed_us_.erase(missed_us_.lower_bound({begin, 0}), missed_us_.lower_bound({end, 0}));
}

bool SharedMappings::holds(const AddressRange& range) const {
  const auto after = ranges_.upper_bound(range.begin);
  return after != ranges_.begin() && std::prev(after)->second >= range.end;
}

bool SharedMappings::may_share(const CudaDriver& driver, std::span<const CUdeviceptr> mappings) {
  if (!is_on_ || driver.mem_set_access == nullptr) return false;
  const std::lock_guard lock(mutex_);
  return !ranges_.empty() && std::ranges::all_of(mappings, [&](CUdeviceptr address) {
    return holds({address, address + 1});
  });
}

bool SharedMappings::give(const CudaDriver& driver, std::span<const CUdeviceptr> mappings, int gpu,
                          double saved_us) {
  if (!is_on_ || driver.mem_set_access == nullptr) return false;
  const RelaxedCapture relaxed(driver);
  const std::lock_guard lock(mutex_);
  if (ranges_.empty()) return false;
  // Mappings that follow each other are one call.
  std::vector<AddressRange> lacking;
  double lacking_us = 0;
  for (const CUdeviceptr address : mappings) {
    if (!lacking.empty() && address < lacking.back().end) continue;
    const auto mapping = mapping_at(driver, address);
    if (!mapping || !holds(*mapping) || refusals_.contains({mapping->begin, gpu})) return false;
    const CUmemAccess_flags access = mapping_access(driver, address, gpu);
    if (access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) continue;
    if (access != CU_MEM_ACCESS_FLAGS_PROT_NONE) return false;
    lacking_us += cost_us(mapping->end - mapping->begin);
    if (!lacking.empty() && lacking.back().end == mapping->begin)
      lacking.back().end = mapping->end;
    else
      lacking.push_back(*mapping);
  }
  if (lacking.empty()) return true;
  const auto missed = missed_us_.try_emplace({lacking.front().begin, gpu}, 0).first;
  missed->second += saved_us;
  if (missed->second < lacking_us) return false;
  missed_us_.erase(missed);
  return std::ranges::all_of(
      lacking, [&](const AddressRange& range) { return set_access(driver, range, gpu); });
}

bool SharedMappings::set_access(const CudaDriver& driver, const AddressRange& range, int gpu) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = gpu;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUresult result = driver.mem_set_access(range.begin, range.end - range.begin, &access, 1);
  if (result == CUDA_SUCCESS) {
    ++counts_.granted;
    return true;
  }
  ++counts_.refused;
  refusals_.emplace(range.begin, gpu);
  log_info("gpu{} gets no access to a mapping of {} bytes: {}", gpu, range.end - range.begin,
           describe(driver, result));
  return false;
}

SharedMappings::Counts SharedMappings::counts() {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void SharedMappings::reset_counts() {
  const std::lock_guard lock(mutex_);
  counts_ = {};
}

}  // namespace polypath
