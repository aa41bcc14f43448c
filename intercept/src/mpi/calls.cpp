// The functions of MPI that the shim replaces, and which way their calls go.
#include <atomic>

#include "cuda/intercepted.hpp"
#include "mpi/comm_state.hpp"
#include "mpi/memory.hpp"
#include "mpi/staged.hpp"

namespace polypath::preload::mpi {
namespace {

std::uint64_t bytes_of(std::int64_t count, Handle type) noexcept {
  if (const Datatype* const known = find_datatype(type))
    return static_cast<std::uint64_t>(count) * known->bytes;
  std::int64_t bytes = 0;
  const bool is_known =
      type != library().datatype_null && library().type_size(type, &bytes) == kSuccess && bytes > 0;
  return is_known ? static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(bytes) : 0;
}

/// Why no rank carries such a call: found by each from what MPI wants to be the same on all.
Reason common_problem(const Call& call) noexcept {
  if (call.recv_count <= 0) return Reason::no_elements;
  if (!combines(call.operation)) return Reason::none;
  const Datatype* const datatype = find_datatype(call.recv_type);
  if (datatype == nullptr || datatype->reduced_as == kNotReduced)
    return Reason::datatype_of_reduction;
  return find_operator(call.op) < 0 ? Reason::operator_of_reduction : Reason::none;
}

/// What this rank's buffers have to do with GPUs.
Seen seen_of(const Place (&places)[2]) noexcept {
  for (const Place& place : places)
    if (place.gpu >= 0 || place.problem == Reason::managed_memory) return Seen::device_memory;
  return driver_library() != nullptr ? Seen::driver : Seen::nothing;
}

/// Why this rank cannot have its buffers used by polypath; finds their GPU.
Reason own_problem(const Call& call, const CommState& ranks, std::uint64_t part_bytes, int* gpu,
                   Seen* seen) noexcept {
  const Datatype* const datatype = find_datatype(call.recv_type);
  const bool sends = !call.in_place && call.operation != Operation::broadcast;
  Buffer buffers[2];
  const std::size_t count = buffers_of(call, part_bytes, ranks.size, buffers);
  const std::size_t element = combines(call.operation) ? datatype->bytes : 1;
  *gpu = -1;
  Place places[2];
  for (std::size_t i = 0; i < count; ++i) places[i] = place_of(buffers[i], element);
  *seen = seen_of(places);
  for (std::size_t i = 0; i < count; ++i) {
    const Place& place = places[i];
    if (place.problem != Reason::none) return place.problem;
    if (*gpu >= 0 && place.gpu != *gpu) return Reason::other_gpu;
    *gpu = place.gpu;
  }
  if (ranks.comm != nullptr && *gpu != ranks.gpu) return Reason::other_gpu;
  if (datatype == nullptr || (sends && find_datatype(call.send_type) == nullptr))
    return Reason::datatype;
  const bool is_even = !sends || bytes_of(call.send_count, call.send_type) == part_bytes;
  return is_even ? Reason::none : Reason::ranks_differ;
}

/// What MPI moves are bytes to polypath: ranks may name their datatypes differently.
constexpr polypath_data_type kBytes = POLYPATH_UINT8;

/// The call as polypath has it. MPI's data in place are the receive buffer's; where polypath's
/// kernels cannot have them so, the spare memory stands in for one side.
polypath_offload_call offloaded(const Call& call, const CommState& ranks, std::size_t part_bytes,
                                const Datatype* datatype) noexcept {
  polypath_offload_call result{};
  result.op = op_of(call.operation);
  result.type = kBytes;
  result.count = part_bytes;
  result.send = call.in_place ? call.recv : call.send;
  result.recv = call.recv;
  result.stream = ranks.stream;
  if (combines(call.operation)) {
    result.type = static_cast<polypath_data_type>(datatype->reduced_as);
    result.reduction = static_cast<polypath_reduce_op>(find_operator(call.op));
    result.count = part_bytes / datatype->bytes;
  }
  if (call.operation == Operation::broadcast) result.root = call.root;
  if (!call.in_place) return result;
  void* const spare = reinterpret_cast<void*>(ranks.spare);
  if (call.operation == Operation::all_gather)
    result.send = static_cast<char*>(call.recv) + part_bytes * static_cast<std::size_t>(ranks.rank);
  if (call.operation == Operation::all_to_all) result.send = spare;
  // MPI wants the result at the beginning, where other ranks' parts are.
  if (call.operation == Operation::reduce_scatter) result.recv = spare;
  return result;
}

int fail(const Call& call, CommState& ranks, const char* why) noexcept {
  log_line(LogLevel::error, "%s of rank %d of %d: %s",
           kFunctionNames[static_cast<std::size_t>(call.function)], ranks.rank, ranks.size, why);
  polypath_api().comm_abort(ranks.comm, why);
  library().comm_call_errhandler(call.comm, library().error_other);
  return library().error_other;
}

/// All ranks have agreed to it. Waits for the end. What fails now is an error of MPI, for all
/// ranks: the others' kernels are under way. `datatype`: of the elements, where they are combined.
int execute(const Call& call, CommState& ranks, const Engine& engine, std::size_t part_bytes,
            const Datatype* datatype) noexcept {
  constexpr const char* kDriverFailed = "the GPU's driver failed";
  const PrimaryContext primary(ranks.gpu);
  const InContext current(primary.get());
  const auto recv = reinterpret_cast<CUdeviceptr>(call.recv);
  const polypath_offload_call request = offloaded(call, ranks, part_bytes, datatype);
  if (call.in_place && call.operation == Operation::all_to_all &&
      driver::memcpy_on_gpu_async(ranks.spare, recv,
                                  part_bytes * static_cast<std::size_t>(ranks.size),
                                  ranks.stream) != CUDA_SUCCESS)
    return fail(call, ranks, kDriverFailed);
  if (engine.offload_collective(ranks.comm, &request, 1) != POLYPATH_SUCCESS)
    return fail(call, ranks, engine.last_error());
  CUresult copied = CUDA_SUCCESS;
  if (call.in_place && call.operation == Operation::reduce_scatter)
    copied = driver::memcpy_on_gpu_async(recv, ranks.spare, part_bytes, ranks.stream);
  // A wait for a rank that is gone ends within the time limit, and this returns the error.
  if (engine.comm_synchronize(ranks.comm, ranks.stream) != POLYPATH_SUCCESS)
    return fail(call, ranks, engine.last_error());
  if (copied != CUDA_SUCCESS) return fail(call, ranks, kDriverFailed);
  note_finished(*ranks.progress, ranks.local_rank);
  trim_spare(ranks);
  return kSuccess;
}

/// Where a call went.
struct Outcome {
  Reason reason = Reason::none;  ///< none: it was carried
  int result = kSuccess;         ///< then; and of what MPI failed in between
};

/// What this rank can say once its buffers are well.
Vote own_answer(const Call& call, CommState& ranks, const ApiScope& engine, int gpu,
                std::uint64_t part_bytes, Reason* problem) noexcept {
  if (!engine || !engine->has_collectives()) {
    *problem = Reason::no_engine;
    return Vote::no;
  }
  if (ranks.comm != nullptr && engine->comm_check(ranks.comm) != POLYPATH_SUCCESS)
    return Vote::never;
  take_gpu(ranks, gpu);
  if (reserve_spare(ranks, spare_bytes_of(call, part_bytes, ranks.size))) return Vote::yes;
  *problem = Reason::no_memory;
  return Vote::no;
}

/// What all said came to; the rest of the call where all can.
Outcome decide(const Call& call, CommState& ranks, const ApiScope* engine, Vote vote,
               Reason problem, std::uint64_t part_bytes, Seen seen) noexcept {
  const Datatype* const datatype = find_datatype(call.recv_type);
  const bool is_sum = combines(call.operation);
  const Agreement all =
      agree(ranks, vote,
            arguments_of({.operation = call.operation,
                          .type = is_sum ? datatype->reduced_as : 0,
                          .op = is_sum ? find_operator(call.op) : 0,
                          .root = call.operation == Operation::broadcast ? call.root : 0},
                         part_bytes),
            seen);
  if (all.failed) return {Reason::none, library().error_other};
  const bool is_yes = all.answer == Vote::yes && all.is_same;
  note_answer(ranks, call.operation, part_bytes, is_yes);
  note_seen(ranks, all.seen);
  if (all.answer == Vote::off) ranks.refused = Reason::switched_off;
  if (all.answer == Vote::never) ranks.refused = Reason::lost;
  if (ranks.refused != Reason::none) return {ranks.refused};
  if (all.answer == Vote::no) return {problem != Reason::none ? problem : Reason::other_rank};
  if (!is_yes) return {Reason::ranks_differ};
  if (ranks.comm == nullptr && !make_communicator(ranks, **engine)) return {Reason::refused};
  return {Reason::none, execute(call, ranks, **engine, part_bytes, datatype)};
}

/// Collective over the ranks.
Outcome ask(const Call& call, CommState& ranks, std::uint64_t part_bytes) noexcept {
  int gpu = -1;
  Seen seen = Seen::nothing;
  if (!ranks.knows_nodes && !count_ranks_of_nodes(ranks))
    return {Reason::none, library().error_other};
  if (ranks.refused != Reason::none) return {ranks.refused};
  if (ranks.is_off)
    return decide(call, ranks, nullptr, Vote::off, Reason::switched_off, part_bytes, seen);
  Reason problem = own_problem(call, ranks, part_bytes, &gpu, &seen);
  Vote vote = ranks.is_lost ? Vote::never : Vote::no;
  // Driver calls that this thread makes meanwhile are not intercepted; MPI's own copies must be.
  if (problem != Reason::none || ranks.is_lost)
    return decide(call, ranks, nullptr, vote, problem, part_bytes, seen);
  const ApiScope engine(ApiScope::Start::yes);
  const RelaxedCapture relaxed;
  vote = own_answer(call, ranks, engine, gpu, part_bytes, &problem);
  return decide(call, ranks, &engine, vote, problem, part_bytes, seen);
}

int run(const Call& program_call) noexcept {
  init_process();
  const Library& mpi = library();
  Call call = program_call;
  call.send_type = clean(program_call.send_type);
  call.recv_type = clean(program_call.recv_type);
  call.op = clean(program_call.op);
  call.comm = clean(program_call.comm);
  if (mpi.family == Family::unknown || call.comm == mpi.comm_null || !is_initialized()) {
    count_call(call.function, 0);
    count_outcome(call.function, Reason::unknown_library);
    return call_original(call);
  }
  call.in_place = call.operation != Operation::broadcast && call.send == mpi.in_place;
  const std::uint64_t part_bytes = bytes_of(call.recv_count, call.recv_type);
  count_call(call.function, part_bytes);
  CommState* const ranks = ranks_of(call.comm);
  if (ranks == nullptr) {
    // The others would wait for this rank's word.
    log_line(LogLevel::error, "%s: no memory, or MPI_Comm_set_attr failed",
             kFunctionNames[static_cast<std::size_t>(call.function)]);
    mpi.comm_call_errhandler(call.comm, mpi.error_other);
    return mpi.error_other;
  }
  Outcome outcome{part_bytes == 0 ? Reason::no_elements : common_problem(call)};
  if (outcome.reason == Reason::none) outcome.reason = ranks->refused;
  if (outcome.reason == Reason::none && (call.root < 0 || call.root >= ranks->size))
    outcome.reason = Reason::bad_root;
  if (outcome.reason == Reason::none)
    outcome = is_asked(*ranks, call.operation, part_bytes) ? ask(call, *ranks, part_bytes)
                                                           : Outcome{Reason::not_asked};
  count_outcome(call.function, outcome.reason);
  if (outcome.reason == Reason::none) return outcome.result;
  // Between groups one may give what the other does not.
  const bool is_plain = outcome.reason == Reason::no_elements && ranks->remote_size == 0;
  return is_plain ? call_original(call)
                  : call_mpi(call, {ranks->rank, ranks->size, ranks->remote_size});
}

}  // namespace

int call_original(const Call& call, const void* send, void* recv) noexcept {
  void* const original = library().originals[static_cast<std::size_t>(call.function)];
  if (original == nullptr) {
    static constinit std::atomic_flag was_told = ATOMIC_FLAG_INIT;
    const char* const name = kFunctionNames[static_cast<std::size_t>(call.function)];
    if (!was_told.test_and_set())
      log_line(LogLevel::error, "%s: no object of this process defines P%s: nothing was done", name,
               name);
    return library().error_other;
  }
  const auto as_int = [](std::int64_t count) { return static_cast<int>(count); };
  // The type of the function, from those of its arguments.
  const auto pass = [original](auto... arguments) {
    return reinterpret_cast<int (*)(decltype(arguments)...)>(original)(arguments...);
  };
  switch (call.function) {
    case Function::MPI_Allreduce:
    case Function::MPI_Reduce_scatter_block:
      return pass(send, recv, as_int(call.recv_count), call.recv_type, call.op, call.comm);
    case Function::MPI_Allreduce_c:
    case Function::MPI_Reduce_scatter_block_c:
      return pass(send, recv, call.recv_count, call.recv_type, call.op, call.comm);
    case Function::MPI_Allgather:
    case Function::MPI_Alltoall:
      return pass(send, as_int(call.send_count), call.send_type, recv, as_int(call.recv_count),
                  call.recv_type, call.comm);
    case Function::MPI_Allgather_c:
    case Function::MPI_Alltoall_c:
      return pass(send, call.send_count, call.send_type, recv, call.recv_count, call.recv_type,
                  call.comm);
    case Function::MPI_Bcast:
      return pass(recv, as_int(call.recv_count), call.recv_type, call.root, call.comm);
    case Function::MPI_Bcast_c:
      return pass(recv, call.recv_count, call.recv_type, call.root, call.comm);
  }
  return library().error_other;
}

int call_original(const Call& call) noexcept { return call_original(call, call.send, call.recv); }

}  // namespace polypath::preload::mpi

using namespace polypath::preload::mpi;

/// Exported as what stands in for the driver's functions is (cuda/intercepted.hpp): bound by
/// programs that call MPI by name, and absent to dlsym().
#define POLYPATH_MPI_REPLACEMENT(name)                                    \
  __asm__(".symver polypath_shim_" #name ", " #name "@POLYPATH_PRELOAD"); \
  extern "C" __attribute__((visibility("default"))) int polypath_shim_##name

#define POLYPATH_REDUCTION(name, operation, Count)                                              \
  POLYPATH_MPI_REPLACEMENT(name)                                                                \
  (const void* send, void* recv, Count count, Handle type, Handle op, Handle comm) {            \
    return run(                                                                                 \
        {Function::name, operation, send, recv, count, count, type, type, op, 0, comm, false}); \
  }
#define POLYPATH_MOVE(name, operation, Count)                                             \
  POLYPATH_MPI_REPLACEMENT(name)                                                          \
  (const void* send, Count send_count, Handle send_type, void* recv, Count recv_count,    \
   Handle recv_type, Handle comm) {                                                       \
    return run({Function::name, operation, send, recv, send_count, recv_count, send_type, \
                recv_type, 0, 0, comm, false});                                           \
  }
#define POLYPATH_BROADCAST(name, Count)                                                            \
  POLYPATH_MPI_REPLACEMENT(name)                                                                   \
  (void* buffer, Count count, Handle type, int root, Handle comm) {                                \
    return run({Function::name, Operation::broadcast, buffer, buffer, count, count, type, type, 0, \
                root, comm, false});                                                               \
  }

POLYPATH_REDUCTION(MPI_Allreduce, Operation::all_reduce, int)
POLYPATH_REDUCTION(MPI_Allreduce_c, Operation::all_reduce, std::int64_t)
POLYPATH_REDUCTION(MPI_Reduce_scatter_block, Operation::reduce_scatter, int)
POLYPATH_REDUCTION(MPI_Reduce_scatter_block_c, Operation::reduce_scatter, std::int64_t)
POLYPATH_MOVE(MPI_Allgather, Operation::all_gather, int)
POLYPATH_MOVE(MPI_Allgather_c, Operation::all_gather, std::int64_t)
POLYPATH_MOVE(MPI_Alltoall, Operation::all_to_all, int)
POLYPATH_MOVE(MPI_Alltoall_c, Operation::all_to_all, std::int64_t)
POLYPATH_BROADCAST(MPI_Bcast, int)
POLYPATH_BROADCAST(MPI_Bcast_c, std::int64_t)
