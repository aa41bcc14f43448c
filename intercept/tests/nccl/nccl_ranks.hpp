// Ranks of one NCCL communicator: threads of this process, a GPU each.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "nccl_api.hpp"

namespace polypath::test {

inline void require_ok(int code, const char* call) {
  if (code != 0) throw std::runtime_error(std::string(call) + " gave " + std::to_string(code));
}
#define NCCL_OK(call) require_ok(call, #call)
#define CUDA_OK(call) require_ok(static_cast<int>(call), #call)

/// Free memory of the current GPU.
inline std::size_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  CUDA_OK(cuMemGetInfo(&free, &total));
  return free;
}

using Bytes = std::vector<std::byte>;
constexpr std::byte kPoison{0xA5};

/// Memory of the current GPU, with a guard on either side.
class DeviceBytes {
 public:
  static constexpr std::size_t kGuard = 256;
  explicit DeviceBytes(std::size_t bytes, std::size_t shift = 0) : bytes_(bytes), shift_(shift) {
    CUDA_OK(cuMemAlloc(&memory_, bytes + 2 * kGuard));
    const Bytes poison(bytes + 2 * kGuard, kPoison);
    CUDA_OK(cuMemcpyHtoD(memory_, poison.data(), poison.size()));
    CUDA_OK(cuStreamSynchronize(nullptr));  // from pageable memory: it may still be on its way
  }
  ~DeviceBytes() { cuMemFree(memory_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  [[nodiscard]] void* get(std::size_t offset = 0) const {
    return reinterpret_cast<void*>(memory_ + kGuard + shift_ + offset);
  }
  void put(std::size_t offset, const Bytes& contents) {
    if (contents.empty()) return;
    CUDA_OK(
        cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(get(offset)), contents.data(), contents.size()));
    CUDA_OK(cuStreamSynchronize(nullptr));
  }
  [[nodiscard]] Bytes all() const {
    Bytes contents(bytes_);
    if (bytes_ > 0)
      CUDA_OK(cuMemcpyDtoH(contents.data(), reinterpret_cast<CUdeviceptr>(get()), bytes_));
    return contents;
  }
  [[nodiscard]] bool is_guarded() const {
    Bytes contents(bytes_ + 2 * kGuard);
    CUDA_OK(cuMemcpyDtoH(contents.data(), memory_, contents.size()));
    for (std::size_t i = 0; i < contents.size(); ++i)
      if ((i < kGuard + shift_ || i >= kGuard + shift_ + bytes_) && contents[i] != kPoison)
        return false;
    return true;
  }

 private:
  CUdeviceptr memory_ = 0;
  std::size_t bytes_;
  std::size_t shift_;
};

/// One rank, on its thread.
struct NcclRank {
  int rank = 0;
  int size = 0;
  void* comm = nullptr;
  std::array<CUstream, 2> streams{};
  const NcclApi& nccl = NcclApi::get();

  void synchronize() const {
    for (const CUstream stream : streams) CUDA_OK(cuStreamSynchronize(stream));
  }
};

inline void use_gpu(int gpu) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUDA_OK(cuInit(0));
  CUDA_OK(cuDeviceGet(&device, gpu));
  CUDA_OK(cuDevicePrimaryCtxRetain(&context, device));
  CUDA_OK(cuCtxSetCurrent(context));
}

/// How a rank enters a communicator.
using Enter = std::function<void(NcclRank&, const NcclId&)>;
inline void by_init_rank(NcclRank& member, const NcclId& id) {
  NCCL_OK(member.nccl.ncclCommInitRank(&member.comm, member.size, id, member.rank));
}

/// Comes to the barrier at its end, also after an exception.
class Arrival {
 public:
  explicit Arrival(std::barrier<>& barrier) : barrier_(barrier) {}
  ~Arrival() { barrier_.arrive_and_wait(); }
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

 private:
  std::barrier<>& barrier_;
};

/// Runs `body` on `size` ranks; the message of each that threw, else "".
inline std::vector<std::string> on_nccl_ranks(int size, const std::function<void(NcclRank&)>& body,
                                              const Enter& enter = &by_init_rank) {
  const NcclApi& nccl = NcclApi::get();
  CUDA_OK(cuInit(0));
  NcclId id{};
  NCCL_OK(nccl.ncclGetUniqueId(&id));
  std::vector<std::string> thrown(static_cast<std::size_t>(size));
  // A rank whose GPU cannot be used does not enter: then none does, or the others would wait in
  // NCCL for it.
  std::atomic<int> ready{0};
  std::barrier together(size);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank)
      threads.emplace_back([&, rank] {
        NcclRank member;
        member.rank = rank;
        member.size = size;
        try {
          {
            const Arrival arrival(together);
            use_gpu(rank);
            for (CUstream& stream : member.streams)
              CUDA_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            ++ready;
          }
          if (ready != size) throw std::runtime_error("another rank cannot use its GPU");
          enter(member, id);
          body(member);
          member.synchronize();
          if (member.comm != nullptr) NCCL_OK(nccl.ncclCommDestroy(member.comm));
        } catch (const std::exception& error) {
          thrown[static_cast<std::size_t>(rank)] = error.what();
          if (member.comm != nullptr)
            nccl.ncclCommAbort(member.comm);  // the others may wait for this one
        }
      });
  }
  return thrown;
}

inline nlohmann::json nccl_report() {
  std::string text(NcclApi::get().report(nullptr, 0) + 1, '\0');
  NcclApi::get().report(text.data(), text.size());
  text.pop_back();
  return nlohmann::json::parse(text);
}

/// How often calls of a function were counted since this was made.
class CountsOf {
 public:
  explicit CountsOf(std::string function)
      : function_(std::move(function)),
        before_(now()),
        nccl_(NcclApi::get().calls(function_.c_str())) {}
  [[nodiscard]] int taken() const { return now() - before_; }
  [[nodiscard]] int by_nccl() const { return NcclApi::get().calls(function_.c_str()) - nccl_; }

 private:
  [[nodiscard]] int now() const {
    const nlohmann::json calls = nccl_report()["calls"];
    return calls.contains(function_) ? calls[function_]["taken"].get<int>() : 0;
  }
  std::string function_;
  int before_;
  int nccl_;
};

}  // namespace polypath::test
