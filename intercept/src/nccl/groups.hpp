// NCCL's groups, of one thread: what is called between the outermost ncclGroupStart and its
// ncclGroupEnd comes together. NCCL has its own group open meanwhile, with what goes to it in
// there; what polypath takes is held here. At the end NCCL's part is launched first, and then what
// was held, in the order of the calls: the same on all ranks, since which call is whose is.
#pragma once

#include <optional>
#include <vector>

#include "nccl/communicator.hpp"
#include "nccl/creation.hpp"
#include "nccl/offload_policy.hpp"

namespace polypath::nccl {

/// One call of a program's, as NCCL has its arguments.
struct Call {
  Operation operation;
  const void* send;
  void* recv;
  std::size_t count;
  int type;
  int reduction;
  int root;
  CUstream stream;
};

class Group {
 public:
  /// The group of this thread.
  static Group& current() noexcept;

  [[nodiscard]] bool is_open() const noexcept { return depth_ > 0; }
  void start() noexcept { ++depth_; }
  /// True: that was the outermost.
  bool end() noexcept { return depth_ > 0 && --depth_ == 0; }

  void hold(CommRef comm, const Call& call) { held_.push_back({std::move(comm), call}); }
  /// A call on this stream went to NCCL.
  void note_forwarded(CommRef comm, CUstream stream);
  /// A call in it was refused: as in NCCL, nothing that is held is issued, and its end says so.
  void fail(int code) noexcept {
    if (is_open() && failed_ == kSuccess) failed_ = code;
  }
  void add(Creation&& creation) { created_.push_back(std::move(creation)); }
  /// Nothing of this communicator is issued any more.
  void forget(const Communicator* comm) noexcept;

  /// Before NCCL's end of the group.
  void prepare() noexcept;
  /// After NCCL's end of the group: `result` of that, or of the first that failed here.
  int finish(int result) noexcept;
  /// What was held, and what was noted, goes nowhere.
  void drop() noexcept;

 private:
  struct Held {
    CommRef comm;
    Call call;
  };
  struct Forwarded {
    CommRef comm;
    CUstream stream;
  };
  int issue_held() noexcept;

  int depth_ = 0;
  int failed_ = kSuccess;  ///< of its first call that was refused
  std::vector<Held> held_;
  std::vector<Forwarded> passed_;
  std::vector<Creation> created_;
  std::optional<GroupCreation> together_;  // of those
};

/// The order of its calls on streams was lost: no rank uses polypath's communicator any more.
/// NCCL's result.
int fail_order(Communicator& comm) noexcept;

/// Gives a call to polypath: NCCL's result. `may_wait`: nothing that the GPU does waits for what
/// this thread issues later.
int issue(Communicator& comm, const Call& call, bool may_wait) noexcept;

}  // namespace polypath::nccl
