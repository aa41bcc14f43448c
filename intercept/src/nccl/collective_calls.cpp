// The collectives of NCCL, its point-to-point calls and groups, as programs call them.
#include "nccl/groups.hpp"
#include "nccl/offload_policy.hpp"
#include "nccl/real_library.hpp"

using namespace polypath::nccl;

namespace {

/// A call that NCCL gets, at its place among those of the communicator.
template <typename Pass>
int pass_on(CommRef comm, CUstream stream, Pass&& pass) noexcept {
  const ReentrancyGuard inside;
  if (!comm || comm->comm == nullptr) return pass();
  if (!comm->order.before(Provider::nccl, stream)) return fail_order(*comm);
  const int result = pass();
  if (Group& group = Group::current(); group.is_open())
    group.note_forwarded(std::move(comm), stream);
  else if (result == kSuccess && !comm->order.after(Provider::nccl, stream))
    return fail_order(*comm);
  return result;
}

/// `config`: of this call; null: none.
template <typename Pass>
int carry(void* handle, const Call& call, Pass&& pass,
          const CallConfig* config = nullptr) noexcept {
  if (ReentrancyGuard::is_inside()) return pass();
  CommRef comm(handle);
  DeclineReason reason = DeclineReason::no_communicator;
  if (comm && (comm->comm != nullptr || comm->has_policy))
    reason = comm->is_lost         ? DeclineReason::lost
             : has_demands(config) ? DeclineReason::own_config
                                   : choose(comm->policy, call.operation, call.count, call.type,
                                            call.reduction, comm->size);
  const bool is_taken = reason == DeclineReason::taken && comm->comm != nullptr;
  // As NCCL says it: at the call, not at the end of the group.
  if (is_taken && (call.root < 0 || call.root >= comm->size)) {
    Group::current().fail(kInvalidArgument);
    return kInvalidArgument;
  }
  count_call(call.operation, reason, call.count * bytes_of_type(call.type));
  if (is_taken) {
    Group& group = Group::current();
    if (!group.is_open()) return issue(*comm, call, true);
    group.hold(std::move(comm), call);
    return kSuccess;
  }
  if (settings().reproducible && (!comm || comm->size > 1) &&
      needs_rank_order(call.operation, call.count, call.type, call.reduction))
    report_unguaranteed(name_of(call.operation), text_of(reason));
  return pass_on(std::move(comm), call.stream, pass);
}

}  // namespace

extern "C" {

// Each has a form with a configuration of the call's own: 2.31 and later.
#define POLYPATH_NCCL_SUM(name, operation)                                                       \
  int name(const void* send, void* recv, std::size_t count, int type, int reduction, void* comm, \
           CUstream stream) {                                                                    \
    POLYPATH_NCCL_REAL(name);                                                                    \
    return carry(comm, {operation, send, recv, count, type, reduction, 0, stream},               \
                 [=] { return real->name(send, recv, count, type, reduction, comm, stream); });  \
  }                                                                                              \
  int name##Config(const void* send, void* recv, std::size_t count, int type, int reduction,     \
                   void* comm, CUstream stream, const CallConfig* config) {                      \
    POLYPATH_NCCL_REAL(name##Config);                                                            \
    return carry(                                                                                \
        comm, {operation, send, recv, count, type, reduction, 0, stream},                        \
        [=] {                                                                                    \
          return real->name##Config(send, recv, count, type, reduction, comm, stream, config);   \
        },                                                                                       \
        config);                                                                                 \
  }
#define POLYPATH_NCCL_MOVE(name, operation)                                                \
  int name(const void* send, void* recv, std::size_t count, int type, void* comm,          \
           CUstream stream) {                                                              \
    POLYPATH_NCCL_REAL(name);                                                              \
    return carry(comm, {operation, send, recv, count, type, kSum, 0, stream},              \
                 [=] { return real->name(send, recv, count, type, comm, stream); });       \
  }                                                                                        \
  int name##Config(const void* send, void* recv, std::size_t count, int type, void* comm,  \
                   CUstream stream, const CallConfig* config) {                            \
    POLYPATH_NCCL_REAL(name##Config);                                                      \
    return carry(                                                                          \
        comm, {operation, send, recv, count, type, kSum, 0, stream},                       \
        [=] { return real->name##Config(send, recv, count, type, comm, stream, config); }, \
        config);                                                                           \
  }
#define POLYPATH_NCCL_ROOTED(name)                                                           \
  int name(const void* send, void* recv, std::size_t count, int type, int root, void* comm,  \
           CUstream stream) {                                                                \
    POLYPATH_NCCL_REAL(name);                                                                \
    return pass_on(CommRef(comm), stream,                                                    \
                   [=] { return real->name(send, recv, count, type, root, comm, stream); }); \
  }                                                                                          \
  int name##Config(const void* send, void* recv, std::size_t count, int type, int root,      \
                   void* comm, CUstream stream, const CallConfig* config) {                  \
    POLYPATH_NCCL_REAL(name##Config);                                                        \
    return pass_on(CommRef(comm), stream, [=] {                                              \
      return real->name##Config(send, recv, count, type, root, comm, stream, config);        \
    });                                                                                      \
  }

POLYPATH_NCCL_SUM(ncclAllReduce, Operation::all_reduce)
POLYPATH_NCCL_SUM(ncclReduceScatter, Operation::reduce_scatter)
POLYPATH_NCCL_MOVE(ncclAllGather, Operation::all_gather)
POLYPATH_NCCL_MOVE(ncclAlltoAll, Operation::all_to_all)
POLYPATH_NCCL_ROOTED(ncclGather)
POLYPATH_NCCL_ROOTED(ncclScatter)

int ncclReduce(const void* send, void* recv, std::size_t count, int type, int reduction, int root,
               void* comm, CUstream stream) {
  POLYPATH_NCCL_REAL(ncclReduce);
  return carry(comm, {Operation::reduce, send, recv, count, type, reduction, root, stream}, [=] {
    return real->ncclReduce(send, recv, count, type, reduction, root, comm, stream);
  });
}

int ncclReduceConfig(const void* send, void* recv, std::size_t count, int type, int reduction,
                     int root, void* comm, CUstream stream, const CallConfig* config) {
  POLYPATH_NCCL_REAL(ncclReduceConfig);
  return carry(
      comm, {Operation::reduce, send, recv, count, type, reduction, root, stream},
      [=] {
        return real->ncclReduceConfig(send, recv, count, type, reduction, root, comm, stream,
                                      config);
      },
      config);
}

int ncclBroadcast(const void* send, void* recv, std::size_t count, int type, int root, void* comm,
                  CUstream stream) {
  POLYPATH_NCCL_REAL(ncclBroadcast);
  return carry(comm, {Operation::broadcast, send, recv, count, type, kSum, root, stream},
               [=] { return real->ncclBroadcast(send, recv, count, type, root, comm, stream); });
}

int ncclBroadcastConfig(const void* send, void* recv, std::size_t count, int type, int root,
                        void* comm, CUstream stream, const CallConfig* config) {
  POLYPATH_NCCL_REAL(ncclBroadcastConfig);
  return carry(
      comm, {Operation::broadcast, send, recv, count, type, kSum, root, stream},
      [=] {
        return real->ncclBroadcastConfig(send, recv, count, type, root, comm, stream, config);
      },
      config);
}

int ncclBcast(void* buffer, std::size_t count, int type, int root, void* comm, CUstream stream) {
  POLYPATH_NCCL_REAL(ncclBcast);
  return carry(comm, {Operation::broadcast, buffer, buffer, count, type, kSum, root, stream},
               [=] { return real->ncclBcast(buffer, count, type, root, comm, stream); });
}

int ncclSend(const void* send, std::size_t count, int type, int peer, void* comm, CUstream stream) {
  POLYPATH_NCCL_REAL(ncclSend);
  return pass_on(CommRef(comm), stream,
                 [=] { return real->ncclSend(send, count, type, peer, comm, stream); });
}

int ncclRecv(void* recv, std::size_t count, int type, int peer, void* comm, CUstream stream) {
  POLYPATH_NCCL_REAL(ncclRecv);
  return pass_on(CommRef(comm), stream,
                 [=] { return real->ncclRecv(recv, count, type, peer, comm, stream); });
}

int ncclGroupStart() {
  POLYPATH_NCCL_REAL(ncclGroupStart);
  const int result = real->ncclGroupStart();
  if (result == kSuccess && !ReentrancyGuard::is_inside()) Group::current().start();
  return result;
}

int ncclGroupEnd() {
  POLYPATH_NCCL_REAL(ncclGroupEnd);
  if (ReentrancyGuard::is_inside()) return real->ncclGroupEnd();
  Group& group = Group::current();
  const bool is_outermost = group.end();
  if (is_outermost) group.prepare();
  const ReentrancyGuard inside;
  const int result = real->ncclGroupEnd();
  return is_outermost ? group.finish(result) : result;
}

int ncclGroupSimulateEnd(void* info) {
  POLYPATH_NCCL_REAL(ncclGroupSimulateEnd);
  Group& group = Group::current();
  // Nothing is issued; what polypath would take is not in NCCL's estimate.
  if (!ReentrancyGuard::is_inside() && group.end()) group.drop();
  const ReentrancyGuard inside;
  return real->ncclGroupSimulateEnd(info);
}

}  // extern "C"
