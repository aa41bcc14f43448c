// Streams on which puts of one group run next to each other.
#pragma once

#include <list>
#include <vector>

#include "driver/resources.hpp"

namespace polypath {

/// The streams of one GPU. A group keeps a stream until all of that group is done, so no group
/// waits after another that has not started. For one thread at a time.
class PutStreamPool {
 public:
  /// `driver` must outlive it; `context` is that of all streams.
  PutStreamPool(const CudaDriver& driver, CUcontext context)
      : driver_(driver), context_(context), fork_(driver, context, CU_EVENT_DISABLE_TIMING) {}

  struct Lane {
    explicit Lane(const CudaDriver& driver, CUcontext context)
        : stream(driver, context), done(driver, context, CU_EVENT_DISABLE_TIMING) {}
    Stream stream;
    Event done;  ///< after what the stream was lent for
  };

  /// `count` streams after all that is on `caller`; fewer where there are no more. The context is
  /// current. What was lent is given back by join().
  std::vector<Lane*> fork(std::size_t count, CUstream caller);
  /// Lets `caller` go on after all that is on them.
  void join(const std::vector<Lane*>& lanes, CUstream caller) const;

 private:
  const CudaDriver& driver_;
  CUcontext context_;
  Event fork_;
  std::list<Lane> lanes_;
};

}  // namespace polypath
