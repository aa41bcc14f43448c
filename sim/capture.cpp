#include "capture.hpp"

#include "failure.hpp"

namespace polypath::sim {

void CaptureMember::add_node() {
  capture->graph.nodes.push_back({nullptr, {last.begin(), last.end()}, std::nullopt});
  last = {static_cast<int>(capture->graph.nodes.size()) - 1};
}

void CaptureMember::join(const CaptureMember& other) {
  require(!is_active() || capture == other.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  if (!is_active()) *this = {other.capture, {}};
  last.insert(other.last.begin(), other.last.end());
}

bool CaptureMember::covers_all() const {
  std::set<int> reached;
  std::vector<int> open(last.begin(), last.end());
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    const std::vector<int>& before = capture->graph.nodes[static_cast<std::size_t>(node)].after;
    open.insert(open.end(), before.begin(), before.end());
  }
  return reached.size() == capture->graph.nodes.size();
}

CUstreamCaptureMode& thread_capture_mode() noexcept {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

bool forbids_unsafe_calls(const Capture& capture) noexcept {
  const CUstreamCaptureMode mode = thread_capture_mode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == std::this_thread::get_id())
    return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

}  // namespace polypath::sim
