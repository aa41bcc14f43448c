#include "rank_gpu.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <bit>
#include <vector>

#include "base/error.hpp"
#include "driver/check.hpp"
#include "polypath_sim.h"

namespace polypath::test {
namespace {

constexpr const char* kDriver = "libcuda.so.1";
constexpr int kMaxHosts = 8;

/// A control function of the simulated driver; null on a real one.
template <typename Function>
Function* control(const char* name) {
  static void* const library = dlopen(kDriver, RTLD_NOW | RTLD_LOCAL);
  return library == nullptr ? nullptr : std::bit_cast<Function*>(dlsym(library, name));
}
#define POLYPATH_CONTROL(function) control<decltype(function)>(#function)

std::uint64_t count(std::uint64_t (*function)()) { return function == nullptr ? 0 : function(); }

}  // namespace

RankGpu::RankGpu(int rank) {
  std::string why;
  driver_ = load_cuda_driver(kDriver, &why);
  if (!driver_) throw Error(why);
  POLYPATH_CHECK(*driver_, device_get_count(&gpus_));
  index_ = rank % gpus_;
  CUcontext context = nullptr;
  POLYPATH_CHECK(*driver_, primary_ctx_retain(&context, index_));
  POLYPATH_CHECK(*driver_, ctx_set_current(context));
}

CUdeviceptr RankGpu::allocate(std::uint64_t bytes) const {
  CUdeviceptr address = 0;
  POLYPATH_CHECK(*driver_, mem_alloc(&address, bytes));
  return address;
}

void RankGpu::free(CUdeviceptr address) const { POLYPATH_CHECK(*driver_, mem_free(address)); }

void RankGpu::write(CUdeviceptr address, std::span<const std::byte> bytes) const {
  POLYPATH_CHECK(*driver_,
                 memcpy_sync(address, std::bit_cast<CUdeviceptr>(bytes.data()), bytes.size()));
  // Memory that is not pinned has been read by now, but not all of it may have arrived.
  POLYPATH_CHECK(*driver_, stream_synchronize(nullptr));
}

void RankGpu::read(CUdeviceptr address, std::span<std::byte> bytes) const {
  POLYPATH_CHECK(*driver_,
                 memcpy_sync(std::bit_cast<CUdeviceptr>(bytes.data()), address, bytes.size()));
}

void RankGpu::reset() const {
  void* const library = dlopen(kDriver, RTLD_NOW | RTLD_LOCAL);
  const auto call =
      std::bit_cast<CUresult (*)(CUdevice)>(dlsym(library, "cuDevicePrimaryCtxReset_v2"));
  if (call == nullptr || call(index_) != CUDA_SUCCESS) throw Error("the GPU cannot be reset");
}

bool RankGpu::is_simulated() const noexcept {
  return POLYPATH_CONTROL(polypath_sim_copies) != nullptr;
}

void RankGpu::reset_counts() const {
  if (const auto reset = POLYPATH_CONTROL(polypath_sim_reset_counters)) reset();
}

std::map<std::string, Moved> RankGpu::links() const {
  const auto bytes = POLYPATH_CONTROL(polypath_sim_link_bytes);
  const auto copies = POLYPATH_CONTROL(polypath_sim_link_copies);
  std::map<std::string, Moved> links;
  if (bytes == nullptr || copies == nullptr) return links;
  std::vector<std::string> memories;
  for (int i = 0; i < gpus_; ++i) memories.push_back(fmt::format("gpu{}", i));
  for (int i = 0; i < kMaxHosts; ++i) memories.push_back(fmt::format("host{}", i));
  for (const std::string& from : memories)
    for (const std::string& to : memories)
      if (const std::uint64_t moved = bytes(from.c_str(), to.c_str()); moved > 0)
        links[from + ">" + to] = {moved, copies(from.c_str(), to.c_str())};
  return links;
}

std::uint64_t RankGpu::pageable_copies() const {
  return count(POLYPATH_CONTROL(polypath_sim_pageable_copies));
}

std::uint64_t RankGpu::bounced_copies() const {
  return count(POLYPATH_CONTROL(polypath_sim_bounced_copies));
}

}  // namespace polypath::test
