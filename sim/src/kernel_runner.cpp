#include "kernel_runner.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <mutex>

#include "contexts.hpp"
#include "devices.hpp"
#include "failure.hpp"
#include "pools.hpp"
#include "reach.hpp"

namespace polypath::sim {

// ---- memory ----

std::byte* KernelMemory::at(std::uintptr_t address, std::size_t bytes, bool writes) {
  const Reached& reached = find(address);
  const Allocation& allocation = *reached.allocation;
  if (address - allocation.base + bytes > allocation.bytes)
    throw simt::Fault{fmt::format("{:#x} and {} bytes run over the end of an allocation of {}",
                                  address, bytes, allocation.bytes)};
  if (!writes) return const_cast<std::byte*>(allocation.read(address, bytes));
  if (!reached.may_write) throw simt::Fault{fmt::format("{:#x} may only be read", address)};
  return allocation.overwrite(address, bytes);
}

MemoryId KernelMemory::location(std::uintptr_t address) {
  return find(address).allocation->location;
}

const KernelMemory::Reached& KernelMemory::find(std::uintptr_t address) {
  const auto holds = [address](const Reached& reached) {
    return address - reached.allocation->base < reached.allocation->bytes;
  };
  if (last_ != nullptr && holds(*last_)) return *last_;
  auto known = reached_.upper_bound(address);
  if (known == reached_.begin() || !holds((--known)->second)) {
    const Reached memory = look_up(address);
    known = reached_.insert_or_assign(memory.allocation->base, memory).first;
  }
  return *(last_ = &known->second);
}

KernelMemory::Reached KernelMemory::look_up(std::uintptr_t address) {
  DriverMutex::ForWorkers mutex(environment_.mutex);
  std::unique_lock lock(mutex, std::defer_lock);
  if (!is_locked_) lock.lock();
  const AllocationPtr allocation = environment_.memory.find(address);
  if (!allocation) throw simt::Fault{fmt::format("{:#x} is no memory of a GPU", address)};
  const Context* const context = environment_.contexts.find(context_);
  if (context == nullptr) throw simt::Fault{"its context is destroyed"};
  const auto reaches = [&](CUmemAccess_flags access) {
    return reach(environment_.pools, *context, *allocation, access) == Reach::direct;
  };
  if (!reaches(CU_MEM_ACCESS_FLAGS_PROT_READ))
    throw simt::Fault{fmt::format("{:#x}, on {}, may not be used by GPU {}", address,
                                  to_string(allocation->location), device_)};
  return {allocation, reaches(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)};
}

// ---- launches ----

simt::Launch KernelRunner::launch_of(const KernelRun& run, int multiprocessors, bool folds) {
  const KernelCall& call = run.call;
  simt::Launch launch;
  launch.kernel = call.host_kernel;
  launch.device = run.device;
  launch.blocks = call.blocks;
  launch.threads = call.threads;
  if (folds && call.host_kernel->folded_threads != 0)
    launch.threads = std::min(call.threads, call.host_kernel->folded_threads);
  launch.shared_bytes = call.shared_bytes;
  // One block a multiprocessor: what polypath's kernels, with their registers, can count on.
  launch.blocks_of_device = static_cast<unsigned>(multiprocessors);
  // It begins after them all the same: what counts is that it would have waited.
  launch.begins_early = call.begins_early;
  launch.arguments = call.arguments;
  return launch;
}

}  // namespace polypath::sim
