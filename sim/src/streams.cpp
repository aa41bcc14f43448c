#include "streams.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>

#include "failure.hpp"

namespace polypath::sim {
namespace {

constexpr int kGreatestPriority = -5;

}  // namespace

CUstream Streams::create(Context& context, unsigned flags, int priority) {
  auto stream = std::make_unique<Stream>();
  stream->context = context.handle;
  stream->device = context.device;
  stream->id = ++last_id_;
  stream->flags = flags;
  stream->priority = std::clamp(priority, kGreatestPriority, kMinStreamPriority);
  const CUstream handle = table_.add(std::move(stream));
  context.streams.insert(handle);
  return handle;
}

void Streams::init_legacy(Context& context) {
  context.legacy.context = context.handle;
  context.legacy.device = context.device;
  context.legacy.id = ++last_id_;
  context.legacy.is_legacy = true;
}

void Streams::destroy(CUstream handle) {
  const Stream& stream = table_.get(handle);
  stream.require_no_capture();
  Context& context = contexts_.get(stream.context);
  context.streams.erase(handle);
  if (stream.tail) context.add_orphan(stream.tail);
  table_.remove(handle);
}

void Streams::destroy_all(const Context& context) {
  for (const auto& [thread, stream] : context.per_thread) captures_.abandon(*stream);
  for (const CUstream handle : context.streams) {
    captures_.abandon(table_.get(handle));
    table_.remove(handle);
  }
}

Stream& Streams::get(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return contexts_.current().legacy;
  if (handle != CU_STREAM_PER_THREAD) return table_.get(handle);
  Context& context = contexts_.current();
  std::unique_ptr<Stream>& stream = context.per_thread[std::this_thread::get_id()];
  if (!stream) {
    stream = std::make_unique<Stream>();
    stream->context = context.handle;
    stream->device = context.device;
    stream->id = ++last_id_;
  }
  return *stream;
}

void Streams::wait_for_room(CUstream handle, std::size_t count) {
  const bool is_default =
      handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
  if (is_default ? context_stack().empty() : table_.find(handle) == nullptr) return;
  const Stream& stream = get(handle);
  if (stream.capture.is_active()) return;
  const int capacity = count < kStreamDepth ? static_cast<int>(count) : kStreamDepth;
  const auto has_room = [queued = stream.queued, capacity] {
    return *queued + capacity <= kStreamDepth + 1;  // and the operation that the stream is at
  };
  if (has_room()) return;
  devices_.catch_up();
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  devices_.wait_until([&] {
    if (has_room()) return true;
    if (std::chrono::steady_clock::now() < deadline) return false;
    std::fprintf(stderr, "polypath_sim: deadlock: a full stream has not moved for %lld s\n",
                 static_cast<long long>(timeout_.count()));
    std::abort();
  });
}

OperationPtr Streams::enqueue(Stream& stream, Operation operation) {
  const Context& context = contexts_.get(stream.context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  operation.previous = stream.tail;
  if (stream.is_legacy) {
    const std::vector<Capture*> captures = implicit_captures(context);
    for (Capture* const capture : captures) capture->is_valid = false;
    require(captures.empty(), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    for_each(context, [&operation](const Stream& other) {
      if (other.is_blocking() && other.tail) operation.after.push_back(other.tail);
    });
  } else if (stream.is_blocking() && context.legacy.tail) {
    operation.after.push_back(context.legacy.tail);
  }
  operation.queue = stream.queued;
  ++*stream.queued;
  stream.tail = devices_.issue(std::move(operation));
  return stream.tail;
}

void Streams::synchronize(CUcontext context) {
  for (const OperationPtr& tail : tails(contexts_.get(context, CUDA_ERROR_INVALID_CONTEXT)))
    devices_.wait(tail);
}

bool Streams::has_implicit_capture(const Context& context) const {
  return !implicit_captures(context).empty();
}

template <typename Visit>
void Streams::for_each(const Context& context, const Visit& visit) const {
  for (const CUstream handle : context.streams) visit(table_.get(handle));
  for (const auto& [thread, stream] : context.per_thread) visit(*stream);
}

std::vector<OperationPtr> Streams::tails(const Context& context) const {
  std::vector<OperationPtr> tails;
  const auto add = [&tails](const Stream& stream) {
    if (stream.tail) tails.push_back(stream.tail);
  };
  add(context.legacy);
  for (const auto& [thread, stream] : context.per_thread) add(*stream);
  for (const CUstream handle : context.streams) add(table_.get(handle));
  tails.insert(tails.end(), context.orphans.begin(), context.orphans.end());
  return tails;
}

std::vector<Capture*> Streams::implicit_captures(const Context& context) const {
  std::vector<Capture*> captures;
  for_each(context, [&captures](const Stream& stream) {
    if (stream.is_blocking() && stream.capture.is_active())
      captures.push_back(stream.capture.capture.get());
  });
  return captures;
}

}  // namespace polypath::sim
