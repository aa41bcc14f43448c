#include "nccl/groups.hpp"

#include <algorithm>

#include "gate/text.hpp"
#include "nccl/real_library.hpp"

namespace polypath::nccl {

namespace {

int result_of(polypath_status status) noexcept {
  switch (status) {
    case POLYPATH_SUCCESS: return kSuccess;
    case POLYPATH_INVALID_ARGUMENT: return kInvalidArgument;
    case POLYPATH_COMMUNICATOR_ERROR: return kRemoteError;
    case POLYPATH_DRIVER_ERROR: return kUnhandledCudaError;
    case POLYPATH_NO_DEVICE:
    case POLYPATH_FILE_ERROR:
    case POLYPATH_INTERNAL_ERROR: break;
    case POLYPATH_NOT_SUPPORTED: return kInternalError;
  }
  return kSystemError;
}

}  // namespace

int fail_order(Communicator& comm) noexcept {
  constexpr const char* kWhy = "the driver cannot keep calls on streams in their order";
  if (comm.comm != nullptr && !comm.is_lost) comm.engine->comm_abort(comm.comm, kWhy);
  if (!comm.has_failed.exchange(true))
    gate::log_line(gate::LogLevel::error, "a call of rank %d failed: %s", comm.rank, kWhy);
  return kUnhandledCudaError;
}

int issue(Communicator& comm, const Call& call, bool may_wait) noexcept {
  const ReentrancyGuard inside;
  if (!comm.order.before(Provider::polypath, call.stream)) return fail_order(comm);
  const polypath_offload_call offloaded{
      .op = gate::op_of(call.operation),
      .type = static_cast<polypath_data_type>(type_of(call.type)),
      .reduction = static_cast<polypath_reduce_op>(
          combines(call.operation) ? operator_of(call.reduction) : 0),
      .root = call.root,
      .send = call.send,
      .recv = call.recv,
      .count = call.count,
      .stream = call.stream};
  const polypath_status status =
      comm.engine->offload_collective(comm.comm, &offloaded, may_wait ? 1 : 0);
  if (status != POLYPATH_SUCCESS && !comm.is_lost && !comm.has_failed.exchange(true))
    gate::log_line(gate::LogLevel::error, "%s of rank %d failed: %s", name_of(call.operation),
                   comm.rank, comm.engine->last_error());
  if (!comm.order.after(Provider::polypath, call.stream) && status == POLYPATH_SUCCESS)
    return fail_order(comm);
  return result_of(status);
}

Group& Group::current() noexcept {
  static thread_local Group group;
  return group;
}

void Group::note_forwarded(CommRef comm, CUstream stream) {
  const auto is_it = [&](const Forwarded& call) {
    return call.comm.get() == comm.get() && call.stream == stream;
  };
  if (std::ranges::none_of(passed_, is_it)) passed_.push_back({std::move(comm), stream});
}

void Group::forget(const Communicator* comm) noexcept {
  std::erase_if(held_, [&](const Held& entry) { return entry.comm.get() == comm; });
  std::erase_if(passed_, [&](const Forwarded& entry) { return entry.comm.get() == comm; });
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
  int code = kSuccess;
  if (together_) code = together_->finish();
  for (const Forwarded& call : passed_)
    if (!call.comm->order.after(Provider::nccl, call.stream)) code = fail_order(*call.comm);
  const int issued = failed_ != kSuccess ? failed_ : issue_held();
  if (code == kSuccess) code = issued;
  drop();
  return code != kSuccess ? code : result;
}

int Group::issue_held() noexcept {
  int result = kSuccess;
  // As in NCCL, streams of one communicator come together before its part of a group, and go on
  // after all of it.
  const auto others_of = [&](const Communicator* comm, CUstream stream, auto&& visit) {
    std::vector<CUstream> seen{stream};
    const auto look = [&](const Communicator* owner, CUstream other) {
      if (owner != comm || std::ranges::find(seen, other) != seen.end()) return;
      seen.push_back(other);
      visit(other);
    };
    for (const Forwarded& call : passed_) look(call.comm.get(), call.stream);
    for (const Held& entry : held_) look(entry.comm.get(), entry.call.stream);
  };
  std::vector<Communicator*> comms;
  for (const Held& entry : held_)
    if (std::ranges::find(comms, entry.comm.get()) == comms.end())
      comms.push_back(entry.comm.get());
  const auto stream_of = [&](const Communicator* comm) {
    const auto is_its = [&](const Held& entry) { return entry.comm.get() == comm; };
    return std::ranges::find_if(held_, is_its)->call.stream;
  };
  const auto join = [&](Communicator* comm, CUstream waiting, CUstream stream) {
    if (!comm->order.join(waiting, stream)) result = fail_order(*comm);
  };
  for (Communicator* const comm : comms)
    others_of(comm, stream_of(comm), [&](CUstream other) { join(comm, stream_of(comm), other); });
  for (Held& entry : held_) {
    entry.call.stream = stream_of(entry.comm.get());
    if (entry.comm->is_lost) {
      result = kInvalidUsage;
      continue;
    }
    // Calls of other ranks may be this thread's too, and come later.
    const int code = issue(*entry.comm, entry.call, comms.size() == 1);
    if (result == kSuccess) result = code;
  }
  for (Communicator* const comm : comms)
    others_of(comm, stream_of(comm), [&](CUstream other) { join(comm, other, stream_of(comm)); });
  return result;
}

}  // namespace polypath::nccl
