// One log line per cause, however often it occurs.
#pragma once

#include <set>
#include <string_view>

namespace polypath {

/// Not thread-safe.
class SaidOnce {
 public:
  /// True the first time that it is asked for `cause`, which is a literal.
  bool first(std::string_view cause) { return causes_.insert(cause).second; }

 private:
  std::set<std::string_view> causes_;
};

}  // namespace polypath
