#include "nccl/groups.hpp"

#include <algorithm>

#include "gate/text.hpp"
#include "nccl/reentrancy_guard.hpp"
#include "nccl/strict_mode.hpp"

namespace polypath::nccl {

constinit thread_local int ReentrancyGuard::depth = 0;

namespace {

int result_of(polypath_status status) noexcept {
  switch (status) {
    case POLYPATH_SUCCESS: return kSuccess;
    case POLYPATH_INVALID_ARGUMENT: return kInvalidArgument;
    case POLYPATH_COMMUNICATOR_ERROR: return kRemoteError;
    case POLYPATH_DRIVER_ERROR: return kUnhandledCudaError;
    case POLYPATH_NO_DEVICE:
    case POLYPATH_INTERNAL_ERROR: break;
    case POLYPATH_NOT_SUPPORTED: return kInternalError;
  }
  return kSystemError;
}

polypath_status run(const Communicator& comm, const Call& call, const void* send,
                    void* recv) noexcept {
  const Engine& with = *comm.engine;
  const auto type = static_cast<polypath_data_type>(type_of(call.type));
  const auto op =
      static_cast<polypath_reduce_op>(combines(call.operation) ? operator_of(call.reduction) : 0);
  switch (call.operation) {
    case Operation::allreduce:
      return with.all_reduce(comm.comm, send, recv, call.count, type, op, call.stream);
    case Operation::reduce_scatter:
      return with.reduce_scatter(comm.comm, send, recv, call.count, type, op, call.stream);
    case Operation::reduce:
      return with.reduce(comm.comm, send, recv, call.count, type, op, call.root, call.stream);
    case Operation::all_gather:
      return with.all_gather(comm.comm, send, recv, call.count, type, call.stream);
    case Operation::broadcast:
      return with.broadcast(comm.comm, send, recv, call.count, type, call.root, call.stream);
    case Operation::all_to_all:
      return with.all_to_all(comm.comm, send, recv, call.count, type, call.stream);
  }
  return POLYPATH_INVALID_ARGUMENT;
}

/// What this rank gives and gets, in bytes.
struct Parts {
  std::size_t sent = 0;
  std::size_t received = 0;
};
Parts parts_of(const Communicator& comm, const Call& call) noexcept {
  const std::size_t one = call.count * bytes_of_type(call.type);
  const std::size_t all = one * static_cast<std::size_t>(comm.size);
  const bool is_root = call.root == comm.rank;
  switch (call.operation) {
    case Operation::allreduce: return {one, one};
    case Operation::reduce_scatter: return {all, one};
    case Operation::reduce: return {one, is_root ? one : 0};
    case Operation::all_gather: return {one, all};
    case Operation::broadcast: return {is_root ? one : 0, one};
    case Operation::all_to_all: return {all, all};
  }
  return {};
}

/// Over memory of the GPU's own, for buffers that polypath refused on this rank alone. `why`: of
/// what fails here, and not in polypath.
polypath_status run_over_scratch(Communicator& comm, const Call& call, bool may_wait,
                                 const char*& why) noexcept {
  const Parts parts = parts_of(comm, call);
  if ((parts.sent > 0 && call.send == nullptr) || (parts.received > 0 && call.recv == nullptr))
    return POLYPATH_INVALID_ARGUMENT;
  constexpr std::size_t kAlignment = 256;
  const std::size_t first = (parts.sent + kAlignment - 1) / kAlignment * kAlignment;
  const CUdeviceptr memory = comm.scratch.take(first + parts.received, call.stream, may_wait);
  if (memory == 0) {
    why = "a rank has no memory for a buffer that kernels do not reach";
    return POLYPATH_DRIVER_ERROR;
  }
  constexpr const char* kNotCopied = "a rank cannot copy a buffer that kernels do not reach";
  if (parts.sent > 0 && !comm.scratch.copy_in(call.send, 0, parts.sent, call.stream)) {
    comm.scratch.done(call.stream);
    why = kNotCopied;
    return POLYPATH_DRIVER_ERROR;
  }
  polypath_status status = run(comm, call, reinterpret_cast<const void*>(memory),
                               reinterpret_cast<void*>(memory + first));
  if (status == POLYPATH_SUCCESS && parts.received > 0 &&
      !comm.scratch.copy_out(call.recv, first, parts.received, call.stream)) {
    why = kNotCopied;
    status = POLYPATH_DRIVER_ERROR;
  }
  if (!comm.scratch.done(call.stream) && status == POLYPATH_SUCCESS) {
    why = "the driver cannot keep calls on streams in their order";
    status = POLYPATH_DRIVER_ERROR;
  }
  return status;
}

/// Memory that polypath's kernels cannot have: not the GPU's whose context is current, or not
/// aligned.
bool is_foreign(const void* memory, int type) noexcept {
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  if (memory == nullptr) return false;
  if (address % bytes_of_type(type) != 0) return true;
  CUmemorytype kind{};
  if (driver::pointer_get_attribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
          CUDA_SUCCESS ||
      kind != CU_MEMORYTYPE_DEVICE)
    return true;
  int its = 0;
  CUdevice current = 0;
  return driver::pointer_get_attribute(&its, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
             CUDA_SUCCESS &&
         driver::ctx_get_device(&current) == CUDA_SUCCESS && its != current;
}

/// Whether what was refused can be mended. With checks it may have been the comparison with other
/// ranks that failed: on all of them, and the call is not made again.
bool may_go_over_scratch(const Communicator& comm, const Call& call) noexcept {
  if (!settings().checks) return true;
  const InContext current(comm.context);
  return is_foreign(call.send, call.type) || is_foreign(call.recv, call.type);
}

}  // namespace

int fail_order(Communicator& comm) noexcept {
  constexpr const char* kWhy = "the driver cannot keep calls on streams in their order";
  if (comm.comm != nullptr && !comm.is_lost) comm.engine->comm_abort(comm.comm, kWhy);
  if (!comm.has_failed.exchange(true))
    preload::log_line(preload::LogLevel::error, "a call of rank %d failed: %s", comm.rank, kWhy);
  return kUnhandledCudaError;
}

int issue(Communicator& comm, const Call& call, bool may_wait) noexcept {
  const ReentrancyGuard inside;
  if (!comm.order.before(Provider::polypath, call.stream)) return fail_order(comm);
  polypath_status status = run(comm, call, call.send, call.recv);
  const char* why = nullptr;
  if (status == POLYPATH_INVALID_ARGUMENT && may_go_over_scratch(comm, call)) {
    status = run_over_scratch(comm, call, may_wait, why);
    // The others have issued theirs, and would wait for this rank's.
    if (why != nullptr) comm.engine->comm_abort(comm.comm, why);
  }
  if (status != POLYPATH_SUCCESS && !comm.is_lost && !comm.has_failed.exchange(true))
    preload::log_line(preload::LogLevel::error, "%s of rank %d failed: %s", name_of(call.operation),
                      comm.rank, why != nullptr ? why : comm.engine->last_error());
  if (!comm.order.after(Provider::polypath, call.stream) && status == POLYPATH_SUCCESS)
    return fail_order(comm);
  return result_of(status);
}

Group& Group::current() noexcept {
  static thread_local Group group;
  return group;
}

void Group::note_forwarded(CommRef comm, CUstream stream) {
  const auto is_it = [&](const Forwarded& one) {
    return one.comm.get() == comm.get() && one.stream == stream;
  };
  if (std::ranges::none_of(passed_, is_it)) passed_.push_back({std::move(comm), stream});
}

void Group::forget(const Communicator* comm) noexcept {
  std::erase_if(held_, [&](const Held& one) { return one.comm.get() == comm; });
  std::erase_if(passed_, [&](const Forwarded& one) { return one.comm.get() == comm; });
}

void Group::prepare() noexcept {
  if (!created_.empty()) together_.emplace(created_);
}

void Group::drop() noexcept {
  failed_ = kSuccess;
  together_.reset();
  held_.clear();
  passed_.clear();
  created_.clear();
}

int Group::finish(int result) noexcept {
  // What NCCL has not made or launched for sure is not followed up.
  if (result != kSuccess && result != kInProgress) {
    drop();
    return result;
  }
  int mine = kSuccess;
  if (together_) mine = together_->finish();
  for (const Forwarded& one : passed_)
    if (!one.comm->order.after(Provider::nccl, one.stream)) mine = fail_order(*one.comm);
  const int issued = failed_ != kSuccess ? failed_ : issue_held();
  if (mine == kSuccess) mine = issued;
  drop();
  return mine != kSuccess ? mine : result;
}

int Group::issue_held() noexcept {
  int result = kSuccess;
  // As in NCCL, streams of one communicator come together before its part of a group, and go on
  // after all of it.
  const auto others_of = [&](const Communicator* comm, CUstream stream, auto&& visit) {
    std::vector<CUstream> seen{stream};
    const auto look = [&](const Communicator* its, CUstream other) {
      if (its != comm || std::ranges::find(seen, other) != seen.end()) return;
      seen.push_back(other);
      visit(other);
    };
    for (const Forwarded& one : passed_) look(one.comm.get(), one.stream);
    for (const Held& one : held_) look(one.comm.get(), one.call.stream);
  };
  std::vector<Communicator*> comms;
  for (const Held& one : held_)
    if (std::ranges::find(comms, one.comm.get()) == comms.end()) comms.push_back(one.comm.get());
  const auto stream_of = [&](const Communicator* comm) {
    const auto is_its = [&](const Held& one) { return one.comm.get() == comm; };
    return std::ranges::find_if(held_, is_its)->call.stream;
  };
  const auto join = [&](Communicator* comm, CUstream waiting, CUstream stream) {
    if (!comm->order.join(waiting, stream)) result = fail_order(*comm);
  };
  for (Communicator* const comm : comms)
    others_of(comm, stream_of(comm), [&](CUstream other) { join(comm, stream_of(comm), other); });
  for (Held& one : held_) {
    one.call.stream = stream_of(one.comm.get());
    if (one.comm->is_lost) {
      result = kInvalidUsage;
      continue;
    }
    // Those of other ranks may be this thread's too, and come later.
    const int code = issue(*one.comm, one.call, comms.size() == 1);
    if (result == kSuccess) result = code;
  }
  for (Communicator* const comm : comms)
    others_of(comm, stream_of(comm), [&](CUstream other) { join(comm, other, stream_of(comm)); });
  return result;
}

}  // namespace polypath::nccl
