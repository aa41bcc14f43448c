// libpolypath in this process: its C API, opened at run time from the folder that this library lies
// in, and one context.
#pragma once

#include "polypath/comm.h"
#include "polypath/uniconn.h"

namespace polypath::nccl {

struct Engine {
  polypath_context* context;
  decltype(&polypath_context_create) context_create;
  decltype(&polypath_last_error) last_error;
  decltype(&polypath_load_kernels) load_kernels;
  decltype(&polypath_comm_create) comm_create;
  decltype(&polypath_comm_prepare) comm_prepare;
  decltype(&polypath_comm_release_sms) comm_retire;
  decltype(&polypath_comm_destroy) comm_destroy;
  decltype(&polypath_comm_abort) comm_abort;
  decltype(&polypath_comm_check) comm_check;
  decltype(&polypath_comm_gpu) comm_gpu;
  decltype(&polypath_all_reduce) allreduce;
  decltype(&polypath_reduce_scatter) reduce_scatter;
  decltype(&polypath_reduce) reduce;
  decltype(&polypath_all_gather) all_gather;
  decltype(&polypath_broadcast) broadcast;
  decltype(&polypath_all_to_all) all_to_all;
  decltype(&polypath_backend_entries) backend_rows;
};

/// Made when a program first creates a communicator. Null, with `*why` (if not null): no library,
/// or no GPU; the same answer from then on, and for the children of a process that has it. Any
/// thread.
const Engine* engine(const char** why) noexcept;

}  // namespace polypath::nccl
