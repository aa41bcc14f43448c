// libpolypath.so as both interceptors call it: its C API, opened at run time from the folder that
// the interceptor lies in; and the collectives that they offload.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/comm.h"
#include "polypath/offload.h"
#include "polypath/uniconn.h"

/// What copies need.
#define POLYPATH_COPY_FUNCTIONS(each)                                                       \
  each(offload_acquire_context) each(offload_release_context) each(offload_retire_context)  \
      each(last_error) each(last_cuda_result) each(free_string) each(split_thresholds)      \
          each(try_copy_async) each(try_copy_sequenced_async) each(try_group_copy_async)    \
              each(try_copy_batch_async) each(note_copy) each(ipc_register_export)          \
                  each(ipc_register_import) each(ipc_unregister_import) each(share_mapping) \
                      each(unshare_mapping) each(counters) each(counters_text)

/// What collectives need besides.
#define POLYPATH_COMM_FUNCTIONS(each)                                                  \
  each(load_kernels) each(backend_entries) each(comm_create) each(comm_prepare)        \
      each(comm_release_sms) each(comm_destroy) each(comm_abandon) each(comm_abort)    \
          each(comm_check) each(comm_synchronize) each(comm_node_count) each(comm_gpu) \
              each(gpu_reset) each(offload_collective)

namespace polypath::gate {

enum class Operation : std::uint8_t {
  all_reduce = POLYPATH_OFFLOAD_ALL_REDUCE,
  reduce_scatter = POLYPATH_OFFLOAD_REDUCE_SCATTER,
  reduce = POLYPATH_OFFLOAD_REDUCE,
  all_gather = POLYPATH_OFFLOAD_ALL_GATHER,
  broadcast = POLYPATH_OFFLOAD_BROADCAST,
  all_to_all = POLYPATH_OFFLOAD_ALL_TO_ALL,
};
inline constexpr std::size_t kOperationCount = POLYPATH_OFFLOAD_ALL_TO_ALL + 1;

constexpr bool combines(Operation operation) noexcept { return operation <= Operation::reduce; }
/// Whether a rank's send buffer, or its receive buffer, has a part for each rank.
constexpr bool sends_parts(Operation operation) noexcept {
  return operation == Operation::reduce_scatter || operation == Operation::all_to_all;
}
constexpr bool receives_parts(Operation operation) noexcept {
  return operation == Operation::all_gather || operation == Operation::all_to_all;
}
constexpr polypath_offload_op op_of(Operation operation) noexcept {
  return static_cast<polypath_offload_op>(operation);
}

/// Ranks of one node in a communicator: as many as the kernels serve (collective_args.h).
inline constexpr int kMaxRanks = 8;

/// Functions of libpolypath; null: it has none of that name.
struct PolypathApi {
#define POLYPATH_MEMBER(name) decltype(&polypath_##name) name = nullptr;
  POLYPATH_COPY_FUNCTIONS(POLYPATH_MEMBER)
  POLYPATH_COMM_FUNCTIONS(POLYPATH_MEMBER)
#undef POLYPATH_MEMBER

  [[nodiscard]] bool has_copies() const noexcept;
  [[nodiscard]] bool has_collectives() const noexcept;
};

/// And the context that the interceptors of the process share.
struct Engine : PolypathApi {
  polypath_context* context = nullptr;
};

/// Where the interceptor lies: by the name that it was loaded by, or where links lead.
enum class Folder : bool { as_named, resolved };

/// dlopen() of libpolypath; null where that failed. An installed tree has it under its soname, a
/// wheel under its plain name.
void* open_polypath(Folder folder, int flags) noexcept;

/// All that the library has.
PolypathApi find_functions(void* library) noexcept;

}  // namespace polypath::gate
