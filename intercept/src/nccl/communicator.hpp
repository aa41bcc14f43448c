// The state of an NCCL communicator in this library: whether its ranks share a polypath
// communicator, and what was agreed. And the table of all, by NCCL handles.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>

#include "nccl/advertisement.hpp"
#include "nccl/engine.hpp"
#include "nccl/offload_policy.hpp"
#include "nccl/real_library.hpp"
#include "nccl/stream_order.hpp"

namespace polypath::nccl {

/// The state of one rank. As in NCCL, one thread at a time uses it; another one may abort it
/// meanwhile.
struct Communicator {
  void* handle = nullptr;             ///< NCCL's; the same as long as it is known
  std::atomic<int>* users = nullptr;  ///< of its place in the table; null: it has none
  pid_t owner = 0;                    ///< the process that made it known
  int rank = 0;
  int size = 0;
  /// What parts of it are named by; not known: they are NCCL's.
  CommKey key;
  bool is_blocking = true;
  std::uint32_t splits = 0;
  std::uint32_t shrinks = 0;

  /// Null: NCCL's alone, and `refusal` says why.
  polypath_comm* comm = nullptr;
  EngineRef engine;
  CUcontext context = nullptr;        ///< of its GPU
  unsigned long long context_id = 0;  ///< as the driver numbers contexts
  std::string refusal;
  /// Aborted or revoked: nothing more is taken on this rank. (NCCL leaves the communicator unusable
  /// on all.)
  std::atomic<bool> is_lost = false;
  /// Why a call failed is said once.
  std::atomic<bool> has_failed = false;
  /// What the ranks agreed on. `has_policy`: that nothing is taken, and `comm` is null.
  Policy policy;
  bool has_policy = false;
  StreamOrder order;
};

/// The communicator of a handle, which is there until this ends, even if it is destroyed or aborted
/// meanwhile. Any thread, without locks.
class CommRef {
 public:
  /// None for a handle that this library did not see made, or that is a parent process's.
  explicit CommRef(const void* handle) noexcept;
  CommRef(CommRef&& other) noexcept;
  CommRef& operator=(CommRef&& other) noexcept;
  ~CommRef();

  [[nodiscard]] Communicator* get() const noexcept { return communicator_; }
  Communicator* operator->() const noexcept { return communicator_; }
  Communicator& operator*() const noexcept { return *communicator_; }
  explicit operator bool() const noexcept { return communicator_ != nullptr; }

 private:
  std::atomic<int>* users_ = nullptr;
  Communicator* communicator_ = nullptr;
};

/// Whether another one can be known.
bool has_room() noexcept;
/// It is known from now on. What was known by its handle goes: NCCL has destroyed that. False:
/// there is no room.
bool add(Communicator* communicator) noexcept;
/// It is not known any more; the caller has it. Null as well for one of a parent process: of that
/// nothing may end here.
Communicator* remove(const void* handle) noexcept;

/// After ncclCommDestroy and ncclCommAbort: polypath's communicator goes in the background, since
/// other ranks may come to it later, and NCCL would not wait for them; and not before all have left
/// it. Takes it.
void destroy_in_background(Communicator* gone) noexcept;

/// For a communicator that was aborted: until the calls of this rank have ended on their streams,
/// as NCCL's own have when ncclCommAbort returns, so that the program may free its buffers. Waits
/// some seconds at most: the program may hold its streams itself.
void wait_for_aborted_calls(const Communicator& gone) noexcept;

}  // namespace polypath::nccl
