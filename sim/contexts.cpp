#include "contexts.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>

#include "base/units.hpp"
#include "driver.hpp"

namespace polypath::sim {
namespace {

// What a context takes of its GPU's memory. Order of magnitude, not measured.
constexpr std::uint64_t kContextBytes = 300 * kMiB;

/// Until the last copy of the result is gone, or the process ends, no other process gets the GPU. An
/// abstract socket leaves nothing behind. Failure DEVICE_UNAVAILABLE when another one has it.
std::shared_ptr<void> claim_gpu(const std::string& machine, const std::string& node, int device) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name =
      fmt::format("polypath-sim-{}-{}-{}-gpu{}", ::getuid(), machine, node, device);
  require(name.size() < sizeof address.sun_path, CUDA_ERROR_DEVICE_UNAVAILABLE);
  name.copy(address.sun_path + 1, name.size());
  const int file = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  require(file >= 0, CUDA_ERROR_OUT_OF_MEMORY);
  const std::shared_ptr<int> claim(new int(file), [](const int* held) {
    ::close(*held);
    delete held;
  });
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  require(::bind(file, reinterpret_cast<const sockaddr*>(&address), size) == 0,
          CUDA_ERROR_DEVICE_UNAVAILABLE);
  return claim;
}

}  // namespace

std::vector<CUcontext>& context_stack() noexcept {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

int Driver::check_device(CUdevice device) const {
  require(device >= 0 && static_cast<std::size_t>(device) < node.gpus.size(),
          CUDA_ERROR_INVALID_DEVICE);
  return device;
}

bool Driver::has_peer_link(int from, int to) const {
  const auto link = node.find_link(MemoryId::gpu(from), MemoryId::gpu(to));
  return link && node.links[static_cast<std::size_t>(*link)].type != LinkType::bounce;
}

Context& Driver::current_context() {
  const std::vector<CUcontext>& stack = context_stack();
  require(!stack.empty() && stack.back() != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  return contexts.get(stack.back(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

Context& Driver::context_or_current(CUcontext context) {
  return context == nullptr ? current_context()
                            : contexts.get(context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

CUcontext Driver::create_context(int device, unsigned flags, bool is_primary) {
  auto context = std::make_unique<Context>();
  require(mode.compute != Mode::Compute::prohibited, CUDA_ERROR_DEVICE_UNAVAILABLE);
  if (mode.compute == Mode::Compute::exclusive_process) {
    std::weak_ptr<void>& mine = claims[static_cast<std::size_t>(device)];
    context->claim = mine.lock();
    if (!context->claim) mine = context->claim = claim_gpu(mode.machine, node.name, device);
  }
  context->room = memory.take(device, kContextBytes);
  context->device = device;
  context->id = ++last_context_id_;
  context->flags = flags;
  context->is_primary = is_primary;
  Context& created = *context;
  created.handle = contexts.add(std::move(context));
  created.legacy.context = created.handle;
  created.legacy.device = device;
  created.legacy.id = next_stream_id();
  created.legacy.is_legacy = true;
  spend(node.costs.context_create_us);
  return created.handle;
}

void Driver::destroy_context(CUcontext handle) {
  synchronize(handle);
  // One after another: another thread may free some of them while this one waits.
  const auto is_of_context = [handle](const Allocation& each) { return each.context == handle; };
  while (AllocationPtr allocation = memory.find_if(is_of_context)) {
    memory.remove(allocation);
    release(std::move(allocation));
  }
  const Context& context = contexts.get(handle, CUDA_ERROR_INVALID_CONTEXT);
  for (const CUstream stream : context.streams) {
    const std::shared_ptr<Capture> capture = streams.get(stream).capture.capture;
    if (capture) capture->ended = true;
    captures.remove(capture);
    streams.remove(stream);
  }
  for (const CUevent event : context.events) events.remove(event);
  contexts.remove(handle);
}

void Driver::end_primary(int device) {
  // From here on a thread that retains it gets a new one, while this one waits for work.
  CUcontext& handle = primaries[static_cast<std::size_t>(device)].handle;
  if (const CUcontext ended = std::exchange(handle, nullptr)) destroy_context(ended);
}

std::vector<OperationPtr> Driver::tails(const Context& context) {
  std::vector<OperationPtr> tails;
  const auto add = [&tails](const Stream& stream) {
    if (stream.tail) tails.push_back(stream.tail);
  };
  add(context.legacy);
  for (const auto& [thread, stream] : context.per_thread) add(*stream);
  for (const CUstream stream : context.streams) add(streams.get(stream));
  tails.insert(tails.end(), context.orphans.begin(), context.orphans.end());
  return tails;
}

void Driver::synchronize(CUcontext handle) {
  for (const OperationPtr& tail : tails(contexts.get(handle, CUDA_ERROR_INVALID_CONTEXT)))
    wait(tail);
}

}  // namespace polypath::sim
