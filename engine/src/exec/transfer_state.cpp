#include "exec/transfer_state.hpp"

namespace polypath {

unsigned long long anonymous_stream_id() noexcept {
  // The driver's own ids count from 1.
  static std::atomic<unsigned long long> last{1ull << 63};
  return ++last;
}

std::uint64_t TransferState::tick() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace polypath
