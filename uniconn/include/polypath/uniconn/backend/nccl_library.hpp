// NCCL, found at run time. For GpucclBackend.
#pragma once

#include <dlfcn.h>

#include <array>
#include <string>
#include <type_traits>

#include "polypath/nccl_types.hpp"
#include "polypath/uniconn/types.hpp"

namespace polypath::uniconn::detail {

/// NCCL's ABI, as its documentation gives it: handles are pointers, enumerations are ints.
class Nccl {
 public:
  struct Id {
    std::array<char, 128> bytes{};
  };
  static constexpr int kBytes = nccl::kInt8;
  static constexpr int kSum = nccl::kSum;

  /// The library of this process, which stays loaded.
  static const Nccl& get() {
    static const Nccl nccl;
    return nccl;
  }
  void check(int result, const char* call) const {
    if (result != 0) throw backend_error(result, std::string(call) + ": " + error_string(result));
  }

  const char* (*error_string)(int) = nullptr;
  int (*unique_id)(Id*) = nullptr;
  int (*init_rank)(void**, int, Id, int) = nullptr;
  int (*split)(void*, int, int, void**, void*) = nullptr;
  int (*count)(void*, int*) = nullptr;
  int (*user_rank)(void*, int*) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*async_error)(void*, int*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, std::size_t, int, int, void*, Stream) = nullptr;
  int (*recv)(void*, std::size_t, int, int, void*, Stream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int, void*, Stream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int, int, void*, Stream) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int, int, void*, Stream) = nullptr;
  int (*reduce)(const void*, void*, std::size_t, int, int, int, void*, Stream) = nullptr;
  // For kernels; null before NCCL 2.28.
  int (*version)(int*) = nullptr;
  int (*allocate)(void**, std::size_t) = nullptr;
  int (*free)(void*) = nullptr;
  int (*register_window)(void*, void*, std::size_t, void**, int) = nullptr;
  int (*deregister_window)(void*, void*) = nullptr;
  void* create_for_kernels = nullptr;  ///< ncclDevCommCreate, with structures of its headers'
  int (*destroy_for_kernels)(void*, const void*) = nullptr;

 private:
  Nccl() {
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      throw error(POLYPATH_NOT_SUPPORTED,
                  "GpucclBackend: there is no libnccl.so.2: install NCCL (pip install "
                  "nvidia-nccl-cu13), and put its folder into LD_LIBRARY_PATH");
    const auto find = [library](auto& function, const char* name, bool is_needed = true) {
      void* const symbol = dlsym(library, name);
      if (symbol == nullptr && is_needed)
        throw error(
            POLYPATH_NOT_SUPPORTED,
            (std::string("libnccl.so.2 has no ") + name + ": 2.18 or newer is wanted").c_str());
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    };
    find(error_string, "ncclGetErrorString");
    find(unique_id, "ncclGetUniqueId");
    find(init_rank, "ncclCommInitRank");
    find(split, "ncclCommSplit");
    find(count, "ncclCommCount");
    find(user_rank, "ncclCommUserRank");
    find(destroy, "ncclCommDestroy");
    find(async_error, "ncclCommGetAsyncError");
    find(group_start, "ncclGroupStart");
    find(group_end, "ncclGroupEnd");
    find(send, "ncclSend");
    find(recv, "ncclRecv");
    find(all_gather, "ncclAllGather");
    find(broadcast, "ncclBroadcast");
    find(all_reduce, "ncclAllReduce");
    find(reduce, "ncclReduce");
    find(version, "ncclGetVersion", false);
    find(allocate, "ncclMemAlloc", false);
    find(free, "ncclMemFree", false);
    find(register_window, "ncclCommWindowRegister", false);
    find(deregister_window, "ncclCommWindowDeregister", false);
    find(create_for_kernels, "ncclDevCommCreate", false);
    find(destroy_for_kernels, "ncclDevCommDestroy", false);
  }
};

}  // namespace polypath::uniconn::detail
