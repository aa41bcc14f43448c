// Streams: life, order, waiting; what the host does in their order.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <type_traits>

#include "base/thread.hpp"
#include "call.hpp"

using namespace polypath::sim;

namespace {

CUresult create(CUstream* handle, unsigned flags, int priority) {
  return call([&](Driver& driver) {
    Context& context = driver.contexts().current();
    out(handle);
    require((flags & ~unsigned{CU_STREAM_NON_BLOCKING}) == 0, CUDA_ERROR_INVALID_VALUE);
    *handle = driver.streams().create(context, flags, priority);
  });
}

/// What the value in memory has to fulfil.
template <typename Word>
bool holds(Word current, Word value, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<Word>>(current - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return current == value;
    case CU_STREAM_WAIT_VALUE_AND: return (current & value) != 0;
  }
  fail_not_supported("cuStreamWaitValue with this condition");
}

/// The memory that holds the whole word. Failure INVALID_VALUE where there is none.
template <typename Word>
AllocationPtr find_word(Driver& driver, CUdeviceptr address) {
  AllocationPtr allocation = driver.memory().find(address);
  require(allocation && address % sizeof(Word) == 0, CUDA_ERROR_INVALID_VALUE);
  require(address - allocation->base + sizeof(Word) <= allocation->bytes, CUDA_ERROR_INVALID_VALUE);
  return allocation;
}

/// Puts an operation on the stream that `make(driver)` returns. `cpu`: what the call costs.
template <typename Make>
CUresult enqueue(CUstream handle, double polypath::Costs::* cpu, const Make& make) {
  return call([&](Driver& driver) {
    driver.contexts().current();
    driver.streams().wait_for_room(handle);
    Stream& stream = driver.streams().get(handle);
    stream.require_no_capture();
    driver.streams().enqueue(stream, make(driver));
    driver.devices().spend(driver.node.costs.*cpu);
  });
}

template <typename Word>
CUresult wait_value(CUstream stream, CUdeviceptr address, Word value, unsigned flags) {
  return enqueue(stream, &polypath::Costs::value_us, [=](Driver& driver) {
    const AllocationPtr allocation = find_word<Word>(driver, address);
    const unsigned condition = flags & ~unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
    holds(Word{0}, value, condition);
    Operation operation;
    operation.may_complete = [allocation, address, value, condition] {
      // The program may write host memory at any time, from any thread.
      const auto* const word =
          reinterpret_cast<const Word*>(allocation->read(address, sizeof(Word)));
      return holds(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, condition);
    };
    return operation;
  });
}

template <typename Word>
CUresult write_value(CUstream stream, CUdeviceptr address, Word value, unsigned flags) {
  return enqueue(stream, &polypath::Costs::value_us, [=](Driver& driver) {
    const AllocationPtr allocation = find_word<Word>(driver, address);
    require((flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}) == 0,
            CUDA_ERROR_INVALID_VALUE);
    Operation operation;
    operation.takes_us = driver.node.costs.event_us;
    operation.move = [allocation, address, value] {
      auto* const word = reinterpret_cast<Word*>(allocation->overwrite(address, sizeof(Word)));
      __atomic_store_n(word, value, __ATOMIC_RELEASE);
    };
    return operation;
  });
}

/// A function of the program on a thread of its own: it may wait for other threads, which call the
/// driver meanwhile.
class HostCall {
 public:
  explicit HostCall(std::function<void()> function) : function_(std::move(function)) {}

  /// Starts it when it is asked for the first time. Most functions are short: in virtual time the
  /// answer waits for those, so that what they cost is always the same.
  static bool has_ended(const std::shared_ptr<HostCall>& call, bool waits) {
    std::unique_lock lock(call->mutex_);
    if (!std::exchange(call->is_started_, true)) {
      polypath::make_thread([call] { call->run(); }).detach();
      if (waits) call->end_.wait_for(lock, kShort, [&call] { return call->has_ended_; });
    }
    return call->has_ended_;
  }

 private:
  static constexpr std::chrono::milliseconds kShort{100};

  void run() {
    function_();
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    end_.notify_all();
  }

  const std::function<void()> function_;
  std::mutex mutex_;
  std::condition_variable end_;
  bool is_started_ = false;
  bool has_ended_ = false;
};

CUresult call_host(CUstream stream, std::function<void()> function) {
  return enqueue(stream, &polypath::Costs::call_us, [&](Driver& driver) {
    Operation operation;
    operation.may_complete = [call = std::make_shared<HostCall>(std::move(function)),
                              waits = !driver.mode.is_functional] {
      return HostCall::has_ended(call, waits);
    };
    return operation;
  });
}

}  // namespace

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return create(stream, flags, kMinStreamPriority);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  return create(stream, flags, priority);
}

// Work already issued goes on.
CUresult cuStreamDestroy_v2(CUstream handle) {
  return call([&](Driver& driver) { driver.streams().destroy(handle); });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return call([&](Driver& driver) {
    Stream& stream = driver.streams().get(handle);
    stream.require_no_capture();
    driver.captures().require_unsafe_calls_allowed();
    driver.devices().spend(driver.node.costs.call_us);
    const CUcontext context = stream.context;
    if (stream.tail) driver.devices().wait(OperationPtr(stream.tail));
    if (const Context* const owner = driver.contexts().find(context)) owner->require_no_fault();
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return call([&](Driver& driver) {
    Stream& stream = driver.streams().get(handle);
    stream.require_no_capture();
    driver.captures().require_unsafe_calls_allowed();
    driver.devices().spend(driver.node.costs.call_us);
    driver.devices().catch_up();
    driver.contexts().get(stream.context).require_no_fault();
    return !stream.tail || stream.tail->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return call([&](Driver& driver) { out(context) = driver.streams().get(handle).context; });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return call([&](Driver& driver) {
    const Stream& stream = driver.streams().get(handle);
    if (stream.capture.is_active()) stream.capture.capture->is_valid = false;
    stream.require_no_capture();
    out(id) = stream.id;
  });
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned int flags) {
  return wait_value<std::uint32_t>(stream, address, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned int flags) {
  return wait_value<std::uint64_t>(stream, address, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned int flags) {
  return write_value<std::uint32_t>(stream, address, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned int flags) {
  return write_value<std::uint64_t>(stream, address, value, flags);
}

// The functions run on threads of the driver, and may not call it.

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback function, void* data,
                             unsigned int flags) {
  if (function == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return call_host(stream, [=] { function(stream, CUDA_SUCCESS, data); });
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return call_host(stream, [=] { function(data); });
}
