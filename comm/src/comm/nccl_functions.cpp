#include "comm/nccl_functions.hpp"

#include <fmt/format.h>

#include "driver/library.hpp"

namespace polypath {

std::shared_ptr<const NcclFunctions> load_nccl(const std::string& library, std::string* why) {
  std::string ignored;
  std::string& reason = why != nullptr ? *why : ignored;
  void* const handle = open_library(library.empty() ? "libnccl.so.2" : library, &reason);
  if (handle == nullptr) return nullptr;
  auto functions = std::make_shared<NcclFunctions>();
  const char* missing = nullptr;
  const auto find = [&]<typename Function>(Function& function, const char* name) {
    function = find_symbol<Function>(handle, name);
    if (function == nullptr && missing == nullptr) missing = name;
  };
  find(functions->get_version, "ncclGetVersion");
  find(functions->get_unique_id, "ncclGetUniqueId");
  find(functions->comm_init_rank, "ncclCommInitRank");
  find(functions->comm_destroy, "ncclCommDestroy");
  find(functions->comm_abort, "ncclCommAbort");
  find(functions->get_error_string, "ncclGetErrorString");
  find(functions->group_start, "ncclGroupStart");
  find(functions->group_end, "ncclGroupEnd");
  find(functions->allreduce, "ncclAllReduce");
  find(functions->reduce_scatter, "ncclReduceScatter");
  find(functions->reduce, "ncclReduce");
  find(functions->all_gather, "ncclAllGather");
  find(functions->broadcast, "ncclBroadcast");
  find(functions->send, "ncclSend");
  find(functions->recv, "ncclRecv");
  if (missing != nullptr) {
    reason = fmt::format("NCCL's library has no {}", missing);
    return nullptr;
  }
  return functions;
}

}  // namespace polypath
