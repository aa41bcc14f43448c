// Memory that kernels over NCCL reach on other ranks, and what they find of a communicator.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "polypath/uniconn/backend/nccl_library.hpp"
#include "polypath/uniconn/bootstrap.hpp"
#include "polypath/uniconn/cuda.hpp"
#include "polypath/uniconn/device/gpuccl_view.hpp"
#include "polypath/uniconn/device/program_symbols.hpp"
#include "polypath/uniconn/region_map.hpp"

namespace polypath::uniconn::detail {

/// Symmetric windows of all ranks. An address is the one under which kernels find this rank's part:
/// in the space where those of all ranks follow each other.
class NcclWindows {
 public:
  /// Collective. `comm`: of all ranks.
  NcclWindows(Bootstrap bootstrap, const Nccl& nccl, const Cuda& cuda, std::shared_ptr<void> comm)
      : bootstrap_(std::move(bootstrap)), nccl_(nccl), cuda_(cuda), comm_(std::move(comm)) {
    signals_ = static_cast<Row*>(allocate(kMaxParts * sizeof(Row)));
  }
  ~NcclWindows() {
    for (const auto& piece : pieces_.all()) release(piece.handle);
  }
  NcclWindows(const NcclWindows&) = delete;
  NcclWindows& operator=(const NcclWindows&) = delete;

  static void require_device_code(const char* what) {
    if (nccl_of_program == nullptr)
      throw error(POLYPATH_NOT_SUPPORTED,
                  (std::string(what) + " over NCCL: include polypath/uniconn/device/gpuccl.cuh "
                                       "where the kernels are, with NCCL's headers, 2.28 or newer")
                      .c_str());
  }
  /// The same on all ranks. Throws POLYPATH_NOT_SUPPORTED, with what is missing.
  void require() const {
    require_device_code("toDevice");
    if (!lacks_.empty()) throw error(POLYPATH_NOT_SUPPORTED, ("toDevice: " + lacks_).c_str());
  }

  /// On all ranks or on none. Null: there are no windows; require() says why.
  void* allocate(std::size_t bytes) {
    if (nccl_of_program == nullptr || !lacks_.empty()) return nullptr;
    if (lacks_ = lack_of_library(); !lacks_.empty()) return nullptr;
    Window allocation;
    int result = nccl_.allocate(&allocation.memory, bytes);
    for (const int each : bootstrap_.gather(result))
      if (each != 0) {
        if (result == 0) nccl_.free(allocation.memory);
        nccl_.check(each, "ncclMemAlloc");
      }
    const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    result = nccl_.register_window(comm_.get(), allocation.memory, whole, &allocation.window,
                                   kSymmetric);
    // Where there are none it says yes, and gives none.
    struct Outcome {
      int result;
      bool has_window;
    };
    for (const Outcome& each : bootstrap_.gather(Outcome{result, allocation.window != nullptr})) {
      if (each.result == 0 && each.has_window) continue;
      release(allocation);
      nccl_.check(each.result, "ncclCommWindowRegister");
      lacks_ =
          "NCCL has no symmetric windows here: GPUs have to reach each other's memory, and "
          "NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE must not be 0";
      return nullptr;
    }
    std::vector<std::byte> image(nccl_of_program->window_bytes);
    read(image.data(), allocation.window, image.size());
    stride_ = nccl_of_program->stride(image.data());
    void* const address = nccl_of_program->begin(image.data());
    pieces_.add(address, bytes, allocation);
    return address;
  }
  /// False: it is none of these.
  bool release(void* address) {
    const auto* const piece = pieces_.find(address);
    if (piece == nullptr) return false;
    release(pieces_.take(address));
    return true;
  }
  /// Throws for a range that begins in one and ends past it.
  bool holds(const void* address, std::size_t bytes, const char* what) const {
    return pieces_.holds(address, bytes, what);
  }

 private:
  friend class NcclView;
  struct Window {
    void* memory = nullptr;
    void* window = nullptr;
  };
  static constexpr std::size_t kAlignment = 4096;
  static constexpr int kSymmetric = 1;  // NCCL_WIN_COLL_SYMMETRIC
  /// Communicators in the life of a rank whose kernels communicate, and what each has for it.
  static constexpr int kMaxParts = 256;
  using Row = std::uint64_t[kMaxDeviceRanks];

  [[nodiscard]] std::string lack_of_library() const {
    int version = 0;
    if (nccl_.version != nullptr) nccl_.check(nccl_.version(&version), "ncclGetVersion");
    if (nccl_.create_for_kernels == nullptr || nccl_.register_window == nullptr)
      return "libnccl.so.2 is version " + std::to_string(version) +
             ", without what kernels need: 2.28 or newer is wanted";
    if (version != nccl_of_program->version)
      return "the kernels were compiled with headers of NCCL " +
             std::to_string(nccl_of_program->version) + ", and libnccl.so.2 is " +
             std::to_string(version) + ": kernels need the same";
    return {};
  }
  void release(const Window& allocation) const {
    if (allocation.window != nullptr) nccl_.deregister_window(comm_.get(), allocation.window);
    if (allocation.memory != nullptr) nccl_.free(allocation.memory);
  }
  void read(void* to, const void* from, std::size_t bytes) const {
    move(device(to), device(from), bytes);
  }
  void move(DevicePointer to, DevicePointer from, std::size_t bytes) const {
    cuda_.check(cuda_.copy(to, from, bytes, nullptr), "cuMemcpyAsync");
    cuda_.check(cuda_.synchronize(nullptr), "cuStreamSynchronize");
  }

  Bootstrap bootstrap_;
  const Nccl& nccl_;
  const Cuda& cuda_;
  std::shared_ptr<void> comm_;
  Pieces<Window> pieces_;
  std::uint64_t stride_ = 0;
  std::string lacks_;  // empty: nothing that is known
  Row* signals_ = nullptr;
  int next_part_ = 0;
  int rank_ = bootstrap_.rank();
};

/// A GpucclView, and NCCL's structure after it, in memory of this rank's GPU.
class NcclView {
 public:
  /// Collective. `comm`: of some of the ranks of `windows`, which outlives it.
  /// POLYPATH_NOT_SUPPORTED: what these ranks lack.
  NcclView(NcclWindows& windows, std::shared_ptr<void> comm, int rank, int size)
      : windows_(windows), comm_(std::move(comm)) {
    windows_.require();
    if (size > kMaxDeviceRanks)
      throw error(POLYPATH_NOT_SUPPORTED,
                  "toDevice: kernels communicate among 8 ranks at the most");
    const NcclProgramSymbols& program = *nccl_of_program;
    device_comm_.resize(program.comm_bytes);
    nccl().check(program.create(nccl().create_for_kernels, comm_.get(), device_comm_.data()),
                 "ncclDevCommCreate");
    has_device_comm_ = true;
    try {
      if (program.reached(device_comm_.data()) < size)
        throw error(POLYPATH_NOT_SUPPORTED,
                    ("toDevice: kernels over NCCL need ranks that all reach each other's memory "
                     "(LSA); of " +
                     std::to_string(size) + " it is " +
                     std::to_string(program.reached(device_comm_.data())))
                        .c_str());
      write(rank, size);
    } catch (...) {
      release();
      throw;
    }
  }
  ~NcclView() { release(); }
  NcclView(const NcclView&) = delete;
  NcclView& operator=(const NcclView&) = delete;

  [[nodiscard]] void* get() const noexcept { return reinterpret_cast<void*>(at_); }

 private:
  [[nodiscard]] const Nccl& nccl() const noexcept { return windows_.nccl_; }
  [[nodiscard]] const Cuda& cuda() const noexcept { return windows_.cuda_; }

  void write(int rank, int size) {
    GpucclView view{};
    view.rank = rank;
    view.size = size;
    struct Member {
      int number;  // among the ranks of the windows
      int next_part;
    };
    const auto members = gather(Member{windows_.rank_, windows_.next_part_}, size);
    int part = 0;  // that none of them has used
    for (const Member& each : members) part = std::max(part, each.next_part);
    if (part == NcclWindows::kMaxParts)
      throw error(POLYPATH_NOT_SUPPORTED, "toDevice: too many communicators with kernels on NCCL");
    windows_.next_part_ = part + 1;
    view.signals = windows_.signals_[part];
    const auto own = static_cast<std::uint64_t>(windows_.rank_);
    for (std::size_t r = 0; r < members.size(); ++r)
      view.shift[r] = (static_cast<std::uint64_t>(members[r].number) - own) * windows_.stride_;
    std::vector<std::byte> image(sizeof view + device_comm_.size());
    std::memcpy(image.data(), &view, sizeof view);
    std::memcpy(image.data() + sizeof view, device_comm_.data(), device_comm_.size());
    cuda().check(cuda().alloc(&at_, image.size()), "cuMemAlloc");
    windows_.move(at_, device(image.data()), image.size());
  }
  /// The values of all ranks of the communicator, in rank order.
  template <typename T>
  std::vector<T> gather(const T& own, int size) const {
    std::vector<T> all(static_cast<std::size_t>(size));
    DevicePointer memory = 0;
    cuda().check(cuda().alloc(&memory, (all.size() + 1) * sizeof(T)), "cuMemAlloc");
    const std::shared_ptr<void> owner(nullptr, [&](void*) { cuda().free(memory); });
    windows_.move(memory, device(&own), sizeof own);
    nccl().check(nccl().all_gather(reinterpret_cast<void*>(memory),
                                   reinterpret_cast<void*>(memory + sizeof(T)), sizeof(T),
                                   Nccl::kBytes, comm_.get(), nullptr),
                 "ncclAllGather");
    windows_.move(device(all.data()), memory + sizeof(T), all.size() * sizeof(T));
    return all;
  }
  void release() noexcept {
    if (at_ != 0) cuda().free(at_);
    if (has_device_comm_) nccl().destroy_for_kernels(comm_.get(), device_comm_.data());
    at_ = 0;
    has_device_comm_ = false;
  }

  NcclWindows& windows_;
  std::shared_ptr<void> comm_;
  std::vector<std::byte> device_comm_;
  bool has_device_comm_ = false;
  DevicePointer at_ = 0;
};

}  // namespace polypath::uniconn::detail
