#include "comm/host_flags.hpp"

#include <fmt/format.h>

#include <atomic>
#include <new>
#include <utility>

namespace polypath {

/// Each in a cache line of its own.
struct HostFlags::Words {
  alignas(128) std::uint32_t abort = 0;
  alignas(128) wait_error status{};
};

HostFlags::HostFlags(const CudaDriver& driver, std::shared_ptr<const PrimaryContext> context)
    : memory_(driver, std::move(context), sizeof(Words)), words_(new(memory_.get()) Words) {}

void HostFlags::abort() noexcept {
  std::atomic_ref(words_->abort).store(1, std::memory_order_release);
}

// Registered memory has one address for host and GPUs.

const std::uint32_t* HostFlags::abort_flag() const noexcept { return &words_->abort; }

wait_error* HostFlags::status() const noexcept { return &words_->status; }

namespace {

std::string describe_stream_timeout(const wait_error& status) {
  if (status.bytes == HostFlags::kExchanges)
    return fmt::format("exchange {} with other nodes", status.expected);
  if (status.bytes > 0)
    return fmt::format("the signal at offset {} of {} bytes to be {}: it is {}", status.offset,
                       status.bytes, status.expected, status.seen);
  return fmt::format("rank {} at barrier {}: it is at {}", status.waited_for_rank, status.expected,
                     status.seen);
}

/// For a kernel of the program; its calls are those of polypath/uniconn/device.
std::string describe_kernel_timeout(const wait_error& status, const WaitRegistry& numbered) {
  const auto describe = [&](const std::string& what) {
    return fmt::format("block {} of a kernel of the program {}", status.block, what);
  };
  switch (static_cast<wait_error::Reason>(status.reason)) {
    case wait_error::none:
    case wait_error::aborted: return {};
    case wait_error::time_limit:
      if (const std::string what = numbered.describe(status); !what.empty())
        return describe("waited past the time limit for " + what);
      return describe(fmt::format(
          "waited for rank {} past the time limit, {} to be {}: it is {}", status.waited_for_rank,
          status.bytes > 0 ? fmt::format("the signal at {:#x}", status.offset) : "its barrier",
          status.expected, status.seen));
    case wait_error::bad_memory:
      return describe(
          fmt::format("was called wrongly: {} bytes at {:#x} are not from Memory::Alloc",
                      status.bytes, status.offset));
    case wait_error::bad_rank:
      return describe(fmt::format("was called wrongly: there is no rank {} of {}", status.seen,
                                  status.expected));
    case wait_error::bad_state:
    case wait_error::mismatch:
    case wait_error::node_aborted: break;
  }
  return describe("found what cannot be");
}

}  // namespace

std::string HostFlags::given_up(const WaitRegistry& numbered) const {
  wait_error& status = words_->status;
  if (std::atomic_ref(status.given_up).load(std::memory_order_acquire) == 0) return {};
  const std::string who = status.waited_for_rank == wait_error::kNobody
                              ? std::string()
                              : fmt::format(" for rank {}", status.waited_for_rank);
  if (status.kernel == wait_error::kProgram) return describe_kernel_timeout(status, numbered);
  switch (static_cast<wait_error::Reason>(status.reason)) {
    case wait_error::none: break;
    case wait_error::aborted: return {};
    case wait_error::time_limit:
      if (status.kernel == wait_error::kStreamWait)
        return fmt::format("a stream waited past the time limit for {}",
                           describe_stream_timeout(status));
      return fmt::format("kernel {} waited{} past the time limit (expected {}, saw {})",
                         status.kernel, who, status.expected, status.seen);
    case wait_error::mismatch:
      return fmt::format("call {}: {}", status.kernel, numbered.describe(status));
    case wait_error::node_aborted:
      return fmt::format("node {} gave up its part of a collective", status.waited_for_rank);
    case wait_error::bad_state:
    case wait_error::bad_memory:
    case wait_error::bad_rank: break;
  }
  return fmt::format("kernel {} found what cannot be, waiting{} (expected {}, saw {})",
                     status.kernel, who, status.expected, status.seen);
}

}  // namespace polypath
