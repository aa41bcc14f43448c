// What is after the handles of comm.h.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include "base/kept.hpp"
#include "comm/communicator.hpp"
#include "comm/node_network.hpp"
#include "polypath/comm.h"

namespace polypath {
class Context;
}

namespace polypath {

/// What a part above keeps with a communicator.
class CommExtension {
 public:
  virtual ~CommExtension() = default;
  /// Whether its work is under way on a stream.
  [[nodiscard]] virtual bool in_flight() const { return false; }
};

/// One of each type at most. They are destroyed in the reverse order in which they were added.
class CommExtensions {
 public:
  CommExtensions() = default;
  CommExtensions(const CommExtensions&) = delete;
  CommExtensions& operator=(const CommExtensions&) = delete;
  ~CommExtensions() { clear(); }

  /// That of exactly this type; null: there is none.
  template <typename Extension>
  [[nodiscard]] Extension* find() const noexcept {
    for (const auto& extension : all_)
      if (const CommExtension& candidate = *extension; typeid(candidate) == typeid(Extension))
        return static_cast<Extension*>(extension.get());
    return nullptr;
  }
  template <typename Extension>
  Extension& add(std::unique_ptr<Extension> extension) {
    Extension& added = *extension;
    all_.push_back(std::move(extension));
    return added;
  }
  [[nodiscard]] bool in_flight() const {
    return std::ranges::any_of(all_, [](const auto& extension) { return extension->in_flight(); });
  }
  void clear() noexcept {
    while (!all_.empty()) all_.pop_back();
  }

 private:
  std::vector<std::unique_ptr<CommExtension>> all_;
};

}  // namespace polypath

struct polypath_symmetric {
  polypath::SymmetricMemory memory;
};

struct polypath_comm : polypath::Keepable<polypath_comm> {
  polypath::Context* context = nullptr;  ///< that it was created with
  /// The ranks of this node.
  std::unique_ptr<polypath::Communicator> communicator;
  std::unique_ptr<polypath::NodeNetwork> nodes;  ///< null: there is no other
  polypath::CommExtensions extensions;           ///< destroyed before it
  /// As given to create; 0: the collectives' own number.
  int max_blocks = 0;
  int reserved_sms = 0;
  bool retries_buffers = false;
  polypath_sum_order sum_order = POLYPATH_SUM_ORDER_RANK;
  std::vector<std::unique_ptr<polypath_symmetric>> memories;  ///< that were not freed
  /// The process that made it. A child that got it by a fork has none of its threads, and the
  /// control segment is the parent's.
  const pid_t made_by = getpid();
};

namespace polypath {

/// What a communicator of one node has. Throws InvalidArgument for null, NotSupported for one of
/// several nodes.
Communicator& communicator_of(polypath_comm* comm);
/// That of this node's ranks. Throws InvalidArgument when it is null.
Communicator& local_of(polypath_comm* comm);

}  // namespace polypath
