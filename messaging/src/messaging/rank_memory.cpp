#include "messaging/rank_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "comm/rank_error.hpp"
#include "driver/check.hpp"

namespace polypath {

PeerMemory::PeerMemory(Communicator& communicator, std::uint64_t bytes,
                       std::span<const std::byte> wish, std::string what)
    : communicator_(communicator),
      what_(std::move(what)),
      stream_(communicator.driver(), communicator.context()) {
  communicator.check();
  std::vector<std::byte> all(wish.size() * static_cast<std::size_t>(communicator.size()));
  communicator.exchange(wish, all);
  for (std::size_t rank = 1; rank < static_cast<std::size_t>(communicator.size()); ++rank)
    if (!std::equal(wish.begin(), wish.end(),
                    all.begin() + static_cast<std::ptrdiff_t>(rank * wish.size())) ||
        !std::equal(wish.begin(), wish.end(), all.begin()))
      throw CommunicatorError(
          fmt::format("{}: the options or the windows of the ranks differ", what_));
  symmetric_ = communicator.alloc(bytes, SymmetricUse::peers);
  const std::uint32_t first = communicator.register_waits(
      1, [name = what_](const wait_error&, std::uint32_t) { return "a message of " + name; });
  number_ = {new std::uint32_t(first), [&communicator](const std::uint32_t* number) {
               communicator.unregister_waits(*number);
               delete number;
             }};
}

void PeerMemory::write(std::uint64_t offset, std::span<const std::uint64_t> words) {
  const CudaDriver& driver = communicator_.driver();
  const CurrentContext current(driver, communicator_.context());
  POLYPATH_CHECK(
      driver, memcpy_async(symmetric_.local() + offset, reinterpret_cast<CUdeviceptr>(words.data()),
                           words.size_bytes(), stream_.get()));
  POLYPATH_CHECK(driver, stream_synchronize(stream_.get()));
}

void PeerMemory::write_ones(const std::vector<std::uint64_t>& offsets) {
  const CudaDriver& driver = communicator_.driver();
  const CurrentContext current(driver, communicator_.context());
  for (const std::uint64_t offset : offsets)
    POLYPATH_CHECK(driver, memset_d8_async(symmetric_.local() + offset, 0xFF, sizeof(std::uint64_t),
                                           stream_.get()));
  POLYPATH_CHECK(driver, stream_synchronize(stream_.get()));
}

void PeerMemory::meet(const std::function<void()>& writes) {
  Opened opened;
  opened.problem.catch_from(writes);
  std::vector<Opened> all(static_cast<std::size_t>(communicator_.size()));
  communicator_.exchange(std::as_bytes(std::span(&opened, 1)),
                         std::as_writable_bytes(std::span(all)));
  throw_first_error(all, what_);
}

void PeerMemory::release() {
  if (symmetric_) communicator_.free(std::exchange(symmetric_, {}));
}

wait_context PeerMemory::wait_ctx(std::uint32_t timeout_ms) const {
  wait_context context = communicator_.program_wait_context();
  if (timeout_ms != 0) context.time_limit_ns = std::uint64_t{timeout_ms} * 1'000'000;
  return context;
}

}  // namespace polypath
