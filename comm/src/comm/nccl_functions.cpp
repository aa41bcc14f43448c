#include "comm/nccl_functions.hpp"

#include <fmt/format.h>

#include "driver/library.hpp"

namespace polypath {

std::shared_ptr<const NcclFunctions> load_nccl(const std::string& library, std::string* why) {
  std::string ignored;
  std::string& reason = why != nullptr ? *why : ignored;
  void* const handle = open_library(library.empty() ? "libnccl.so.2" : library, &reason);
  if (handle == nullptr) return nullptr;
  auto found = std::make_shared<NcclFunctions>();
  const char* missing = nullptr;
  const auto find = [&]<typename Function>(Function& function, const char* name) {
    function = find_symbol<Function>(handle, name);
    if (function == nullptr && missing == nullptr) missing = name;
  };
  find(found->get_version, "ncclGetVersion");
  find(found->get_unique_id, "ncclGetUniqueId");
  find(found->comm_init_rank, "ncclCommInitRank");
  find(found->comm_destroy, "ncclCommDestroy");
  find(found->comm_abort, "ncclCommAbort");
  find(found->get_error_string, "ncclGetErrorString");
  find(found->group_start, "ncclGroupStart");
  find(found->group_end, "ncclGroupEnd");
  find(found->allreduce, "ncclAllReduce");
  find(found->reduce_scatter, "ncclReduceScatter");
  find(found->reduce, "ncclReduce");
  find(found->all_gather, "ncclAllGather");
  find(found->broadcast, "ncclBroadcast");
  find(found->send, "ncclSend");
  find(found->recv, "ncclRecv");
  if (missing != nullptr) {
    reason = fmt::format("NCCL's library has no {}", missing);
    return nullptr;
  }
  return found;
}

}  // namespace polypath
