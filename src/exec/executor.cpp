#include "exec/executor.hpp"

namespace polypath {

std::string_view to_string(ExecutorKind kind) noexcept {
  switch (kind) {
    case ExecutorKind::stream: return "stream";
    case ExecutorKind::graph: return "graph";
  }
  return "?";
}

}  // namespace polypath
