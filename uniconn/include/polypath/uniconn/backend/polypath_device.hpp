// What kernels over polypath's backend find of a communicator, written by the host.
#pragma once

#include <array>
#include <cstring>
#include <vector>

#include "polypath/comm.hpp"
#include "polypath/uniconn/cuda.hpp"
#include "polypath/uniconn/device/polypath_view.hpp"

namespace polypath::uniconn::detail {

/// A PolypathView in memory of this rank's GPU, kept as Memory gives and takes. Nothing that is on
/// a stream of the program is waited for: kernels that use it may run.
class DeviceView {
 public:
  /// Collective: `ranks` of the communicator get words to meet by. Both arguments outlive it.
  /// POLYPATH_NOT_SUPPORTED: too many ranks.
  DeviceView(const Cuda& cuda, communicator& ranks) : cuda_(cuda) {
    if (ranks.size() > kMaxDeviceRanks)
      throw error(POLYPATH_NOT_SUPPORTED,
                  "toDevice: kernels communicate among 8 ranks at the most");
    const symmetric_memory words = ranks.alloc(sizeof(DeviceWords));
    image_.wait_ctx = ranks.wait_ctx<device::wait_context>();
    image_.rank = ranks.rank();
    image_.size = ranks.size();
    for (int rank = 0; rank < ranks.size(); ++rank)
      image_.words[rank] = static_cast<DeviceWords*>(words.address(rank));
    cuda_.check(cuda_.stream_create(&stream_, kNonBlocking), "cuStreamCreate");
    cuda_.check(cuda_.alloc(&at_, sizeof image_), "cuMemAlloc");
    write(&image_, 0, sizeof image_);
  }
  ~DeviceView() {
    if (at_ != 0) cuda_.free(at_);
    if (stream_ != nullptr) cuda_.stream_destroy(stream_);
  }
  DeviceView(const DeviceView&) = delete;
  DeviceView& operator=(const DeviceView&) = delete;

  [[nodiscard]] void* get() const noexcept { return reinterpret_cast<void*>(at_); }

  /// `addresses` of the same memory on each rank of the communicator.
  void add(std::size_t bytes, const std::vector<void*>& addresses) {
    std::uint64_t at = 0;
    while (at < image_.count && image_.pieces.bytes[at] != 0) ++at;
    if (at == kMaxDevicePieces)
      throw error(POLYPATH_NOT_SUPPORTED,
                  "kernels can send to 256 memories at a time: free some, or allocate larger ones");
    const auto own = device(addresses[static_cast<std::size_t>(image_.rank)]);
    image_.pieces.begin[at] = own;
    image_.pieces.bytes[at] = bytes;
    for (std::size_t rank = 0; rank < addresses.size(); ++rank)
      image_.pieces.shift[rank][at] = device(addresses[rank]) - own;
    write_pieces();
    if (at < image_.count) return;
    ++image_.count;
    write(&image_.count, offset_of(&image_.count), sizeof image_.count);
  }
  void remove(const void* own) {
    for (std::uint64_t at = 0; at < image_.count; ++at) {
      if (image_.pieces.bytes[at] == 0 || image_.pieces.begin[at] != device(own)) continue;
      image_.pieces.begin[at] = image_.pieces.bytes[at] = 0;
      write_pieces();
    }
  }

 private:
  static constexpr unsigned kNonBlocking = 1;

  [[nodiscard]] std::size_t offset_of(const void* of_image) const noexcept {
    return static_cast<std::size_t>(static_cast<const std::byte*>(of_image) -
                                    reinterpret_cast<const std::byte*>(&image_));
  }
  /// What it says of others stays as it is, for kernels that run.
  void write_pieces() { write(&image_.pieces, offset_of(&image_.pieces), sizeof image_.pieces); }
  void write(const void* from, std::size_t offset, std::size_t bytes) {
    cuda_.check(cuda_.copy(at_ + offset, device(from), bytes, stream_), "cuMemcpyAsync");
    cuda_.check(cuda_.synchronize(stream_), "cuStreamSynchronize");
  }

  const Cuda& cuda_;
  PolypathView image_{};
  Stream stream_ = nullptr;
  DevicePointer at_ = 0;
};

}  // namespace polypath::uniconn::detail
