// The end of allocations: an address is invalid at once, its memory is free when no work uses it.
//
// Deallocator owns nothing. All functions are called under the driver's lock. What waits may give
// it back meanwhile: what was looked up has to be looked up again.
#pragma once

#include "devices.hpp"
#include "memory.hpp"
#include "pools.hpp"
#include "streams.hpp"

namespace polypath::sim {

class Deallocator {
 public:
  /// The others must outlive this.
  Deallocator(Memory& memory, Pools& pools, Streams& streams, Devices& devices)
      : memory_(memory), pools_(pools), streams_(streams), devices_(devices) {}

  /// Ends an allocation, as the real driver does: waits for the work of its context first.
  void free(AllocationPtr allocation);
  /// Ends all allocations of the context.
  void free_all(CUcontext context);
  /// Waits until no operation uses a removed allocation, then gives its memory back.
  void release(AllocationPtr allocation);
  /// Gives the memory of a removed allocation back, which only the calling operation uses.
  void reclaim(const AllocationPtr& allocation);

 private:
  Memory& memory_;
  Pools& pools_;
  Streams& streams_;
  Devices& devices_;
};

}  // namespace polypath::sim
