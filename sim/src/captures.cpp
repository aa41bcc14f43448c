#include "captures.hpp"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "failure.hpp"

namespace polypath::sim {
namespace {

/// True when the capture forbids calls to the calling thread that might disturb it.
bool forbids_unsafe_calls(const Capture& capture) noexcept {
  const CUstreamCaptureMode mode = thread_capture_mode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == std::this_thread::get_id())
    return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

}  // namespace

CUstreamCaptureMode& thread_capture_mode() noexcept {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

void CaptureMember::join(const CaptureMember& other) {
  require(!is_active() || capture == other.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  if (!is_active()) *this = {other.capture, {}, {}};
  last.insert(other.last.begin(), other.last.end());
}

void Captures::begin(Stream& stream, CUstreamCaptureMode mode) {
  require(!stream.is_legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  require(!stream.capture.is_active(), CUDA_ERROR_ILLEGAL_STATE);
  auto capture = std::make_shared<Capture>();
  capture->origin = stream.id;
  capture->thread = std::this_thread::get_id();
  capture->mode = mode;
  capture->graph = graphs_.create();
  capture->number = ++begun_;
  stream.capture = {capture, {}, {}};
  captures_.push_back(std::move(capture));
  count_.store(captures_.size(), std::memory_order_release);
}

CUgraph Captures::end(Stream& stream) {
  require(stream.capture.is_active(), CUDA_ERROR_ILLEGAL_STATE);
  Capture& capture = *stream.capture.capture;
  require(capture.origin == stream.id, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  require(capture.mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
              capture.thread == std::this_thread::get_id(),
          CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  const CaptureMember ended = std::exchange(stream.capture, {});
  capture.ended = true;
  remove(ended.capture);
  const bool is_joined = covers_all(ended);
  if (!capture.is_valid || !is_joined) graphs_.destroy(capture.graph);
  require(capture.is_valid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  require(is_joined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  return capture.graph;
}

void Captures::abandon(const Stream& stream) {
  if (!stream.capture.is_active()) return;
  const std::shared_ptr<Capture> capture = stream.capture.capture;
  capture->ended = true;
  remove(capture);
  graphs_.destroy(capture->graph);
}

void Captures::remove(const std::shared_ptr<Capture>& capture) {
  std::erase(captures_, capture);
  count_.store(captures_.size(), std::memory_order_release);
}

void Captures::add_node(CaptureMember& member, GraphWork work) {
  GraphNode new_node;
  new_node.after.assign(member.last.begin(), member.last.end());
  new_node.work = std::move(work);
  new_node.is_captured = true;
  graphs_.add_node(member.capture->graph, std::move(new_node));
  member.last = {static_cast<int>(graphs_.get(member.capture->graph).nodes.size()) - 1};
}

bool Captures::covers_all(const CaptureMember& member) const {
  const std::vector<GraphNode>& nodes = graphs_.get(member.capture->graph).nodes;
  std::set<int> reached;
  std::vector<int> open(member.last.begin(), member.last.end());
  while (!open.empty()) {
    const int index = open.back();
    open.pop_back();
    if (!reached.insert(index).second) continue;
    const std::vector<int>& before = nodes[static_cast<std::size_t>(index)].after;
    open.insert(open.end(), before.begin(), before.end());
  }
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].is_captured && !reached.contains(static_cast<int>(i))) return false;
  return true;
}

void Captures::require_unsafe_calls_allowed() {
  bool is_forbidden = false;
  for (const std::shared_ptr<Capture>& capture : captures_) {
    if (!forbids_unsafe_calls(*capture)) continue;
    capture->is_valid = false;
    is_forbidden = true;
  }
  require(!is_forbidden, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

bool Captures::owns(CUgraph graph) const noexcept {
  return std::ranges::any_of(captures_, [graph](const std::shared_ptr<Capture>& capture) {
    return capture->graph == graph;
  });
}

}  // namespace polypath::sim
