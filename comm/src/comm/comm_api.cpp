// The C API of communicators (comm.h), a thin shell around Communicator.
#include "polypath/comm.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "comm/comm_handle.hpp"
#include "comm/process_events.hpp"
#include "comm/rank_threads.hpp"
#include "comm/socket_bootstrap.hpp"
#include "comm/thread_bootstrap.hpp"
#include "core/c_boundary.hpp"
#include "driver/check.hpp"
#include "driver/context_resets.hpp"

namespace polypath {

Communicator& local_of(polypath_comm* comm) {
  require(comm != nullptr, "comm is null");
  return *comm->communicator;
}

Communicator& communicator_of(polypath_comm* comm) {
  Communicator& local = local_of(comm);
  if (comm->nodes != nullptr)
    throw NotSupported(
        "comm is of several nodes: symmetric memory, signals, barriers, exchange and split are of "
        "one");
  return local;
}

}  // namespace polypath

using namespace polypath;

namespace {

constexpr std::uint32_t kMaxPort = 65535;

/// What was given, else what the settings of the context say.
polypath_comm_options options_of(const Context& context, const polypath_comm_options* args) {
  polypath_comm_options options = args == nullptr ? polypath_comm_options{} : *args;
  if (options.timeout_ms == 0)
    options.timeout_ms = static_cast<std::uint32_t>(context.options().comm_time_limit_ms);
  if (options.port == 0) options.port = static_cast<std::uint32_t>(context.options().comm_port);
  require(options.port <= kMaxPort, "options->port is more than 65535");
  constexpr std::uint32_t kMaxBlocks = 1U << 16;
  require(options.max_blocks <= kMaxBlocks, "options->max_blocks is more than 65536");
  require(options.reserved_sms <= kMaxBlocks, "options->reserved_sms is more than 65536");
  require(options.sum_order <= POLYPATH_SUM_ORDER_TREE, "options->sum_order is none");
  if (options.sum_order == POLYPATH_SUM_ORDER_SETTING)
    options.sum_order = context.options().sum_order == SumOrderSetting::tree
                            ? POLYPATH_SUM_ORDER_TREE
                            : POLYPATH_SUM_ORDER_RANK;
  for (const std::uint64_t reserved : options.reserved)
    require(reserved == 0, "options->reserved is not 0");
  require(options.network == nullptr || options.network->reserved == 0,
          "options->network->reserved is not 0");
  return options;
}

std::unique_ptr<polypath_comm> create(Context& context, int rank, int size, int gpu,
                                      HostAllGather exchange,
                                      const polypath_comm_options& requested) {
  CommunicatorOptions options;
  options.rank = rank;
  options.size = size;
  options.gpu = gpu;
  options.exchange = std::move(exchange);
  options.time_limit = std::chrono::milliseconds(requested.timeout_ms);
  options.sum_order = static_cast<polypath_sum_order>(requested.sum_order);
  options.engine = &context;
  // A kernel's stores would not go over an emulated mesh.
  options.put_kernel_max_bytes =
      context.source().emulated_mesh_gbps > 0 ? 0 : context.options().put_kernel_size;
  auto handle = std::make_unique<polypath_comm>();
  handle->context = &context;
  handle->max_blocks = static_cast<int>(requested.max_blocks);
  handle->reserved_sms = static_cast<int>(requested.reserved_sms);
  handle->retries_buffers = requested.retries_buffers != 0;
  handle->sum_order = options.sum_order;
  if (requested.network == nullptr) {
    handle->communicator =
        std::make_unique<Communicator>(context.source().driver, context.node(), options);
    return handle;
  }
  MultiNodeRank rank_state = create_across_nodes(context.source().driver, context.node(), options,
                                                 *requested.network, context.options().comm_node);
  handle->communicator = std::move(rank_state.local);
  handle->nodes = std::move(rank_state.links);
  return handle;
}

const SymmetricMemory& memory_of(const polypath_symmetric* memory) {
  require(memory != nullptr, "memory is null");
  return memory->memory;
}

Signal signal_of(const polypath_signal* signal) {
  require(signal != nullptr, "signal is null");
  require(signal->memory != nullptr, "signal->memory is null");
  return {signal->memory->memory, signal->offset, signal->value};
}

Put put_of(int to, const polypath_symmetric* memory, std::size_t offset, const void* src,
           std::size_t bytes) {
  return {to, memory_of(memory), offset, reinterpret_cast<CUdeviceptr>(src), bytes};
}

CUstream stream_of(void* stream) { return static_cast<CUstream>(stream); }

polypath_symmetric* alloc_memory(polypath_comm* comm, std::size_t bytes) {
  auto handle = std::make_unique<polypath_symmetric>(communicator_of(comm).alloc(bytes));
  return comm->memories.emplace_back(std::move(handle)).get();
}

/// The handle is gone, also after an error.
void free_memory(polypath_comm* comm, const polypath_symmetric* memory) {
  Communicator& communicator = communicator_of(comm);
  const auto known =
      std::ranges::find(comm->memories, memory, &std::unique_ptr<polypath_symmetric>::get);
  require(known != comm->memories.end(), "memory is not of this communicator, or was freed");
  const std::unique_ptr<polypath_symmetric> handle = std::move(*known);
  comm->memories.erase(known);
  communicator.free(std::move(handle->memory));
}

/// Ends its threads. What it has on the GPU is not named to the driver any more.
void abandon(polypath_comm* comm) noexcept {
  if (comm->nodes != nullptr) comm->nodes->engine->stop();
  comm->communicator->abandon();
  polypath_comm::keep(std::unique_ptr<polypath_comm>(comm));
}

/// After an abort: until no kernel of this rank uses its memory, or the GPU is reset. False: the
/// time limit came first.
bool wait_for_calls(const polypath_comm& comm) {
  const Communicator& local = *comm.communicator;
  const auto deadline = std::chrono::steady_clock::now() + local.time_limit();
  const auto is_waiting = [&] {
    const ContextInUse in_use(*local.primary_context());
    return in_use && comm.extensions.in_flight();
  };
  constexpr std::chrono::milliseconds kPause{1};
  while (is_waiting()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

int own_gpu(const Context& context, int gpu) {
  if (gpu >= 0 || context.node().gpus.size() == 1) return std::max(gpu, 0);
  return number_in_environment("LOCAL_RANK", 0, static_cast<int>(context.node().gpus.size()) - 1);
}

}  // namespace

const polypath_network* polypath_network_nccl(void) { return &nccl_network(); }

polypath_status polypath_comm_create(polypath_context* context, int rank, int size, int gpu,
                                     polypath_all_gather_fn exchange, void* user,
                                     const polypath_comm_options* options, polypath_comm** comm) {
  return guarded([&] {
    require(comm != nullptr, "comm is null");
    require(exchange != nullptr, "exchange is null");
    const auto call = [=](std::span<const std::byte> local, std::span<std::byte> all) {
      if (exchange(local.data(), all.data(), local.size(), user) != 0)
        throw CommunicatorError("the exchange of the caller failed");
    };
    Context& engine_context = context_of(context);
    *comm = create(engine_context, rank, size, gpu, call, options_of(engine_context, options))
                .release();
  });
}

polypath_status polypath_comm_create_all(polypath_context* context, const int* gpus, int size,
                                         const polypath_comm_options* options,
                                         polypath_comm** comms) {
  return guarded([&] {
    require(comms != nullptr, "comms is null");
    require(size > 0, "size is not positive");
    Context& engine_context = context_of(context);
    const polypath_comm_options requested = options_of(engine_context, options);
    const auto exchanges = thread_exchanges(size, std::chrono::milliseconds(requested.timeout_ms));
    std::vector<std::unique_ptr<polypath_comm>> handles(static_cast<std::size_t>(size));
    on_threads(size, [&](std::size_t i) {
      const int rank = static_cast<int>(i);
      handles[i] = create(engine_context, rank, size, gpus == nullptr ? rank : gpus[i],
                          exchanges[i], requested);
    });
    for (std::size_t i = 0; i < handles.size(); ++i) comms[i] = handles[i].release();
  });
}

polypath_status polypath_comm_create_from_environment(polypath_context* context, int gpu,
                                                      const polypath_comm_options* options,
                                                      polypath_comm** comm) {
  return guarded([&] {
    require(comm != nullptr, "comm is null");
    Context& engine_context = context_of(context);
    const polypath_comm_options requested = options_of(engine_context, options);
    const int own = own_gpu(engine_context, gpu);
    const Rendezvous rendezvous = rendezvous_from_environment(static_cast<int>(requested.port));
    *comm = create(engine_context, rendezvous.rank, rendezvous.size, own,
                   socket_exchange(rendezvous, std::chrono::milliseconds(requested.timeout_ms)),
                   requested)
                .release();
  });
}

polypath_status polypath_comm_split(polypath_comm* comm, int color, int key, polypath_comm** part) {
  return guarded([&] {
    require(part != nullptr, "part is null");
    auto handle = std::make_unique<polypath_comm>();
    handle->communicator = communicator_of(comm).split(color, key);
    handle->context = comm->context;
    handle->max_blocks = comm->max_blocks;
    handle->reserved_sms = comm->reserved_sms;
    handle->retries_buffers = comm->retries_buffers;
    handle->sum_order = comm->sum_order;
    *part = handle->communicator == nullptr ? nullptr : handle.release();
  });
}

polypath_status polypath_comm_destroy(polypath_comm* comm) {
  return guarded([&] {
    if (comm == nullptr || comm->made_by != getpid()) return;
    if (comm->communicator->is_lost()) return abandon(comm);
    require(!comm->communicator->streams_wait() || comm->communicator->aborted(),
            "comm: a stream of this rank still waits for a signal or at a barrier: synchronise it, "
            "or abort");
    require(!comm->extensions.in_flight() || comm->communicator->aborted(),
            "comm: a collective of this rank is still under way: synchronise its stream, or abort");
    if (!wait_for_calls(*comm)) {
      log_warn("a call of rank {} is still on its stream: what it uses is kept",
               comm->communicator->rank());
      return polypath_comm::keep(std::unique_ptr<polypath_comm>(comm));
    }
    {
      const ContextInUse in_use(*comm->communicator->primary_context());
      if (!in_use) return abandon(comm);
      comm->extensions.clear();
      comm->nodes.reset();
    }
    delete comm;
  });
}

polypath_status polypath_comm_abandon(polypath_comm* comm) {
  return guarded([&] {
    if (comm != nullptr && comm->made_by == getpid()) abandon(comm);
  });
}

void polypath_gpu_reset(int gpu) { announce_reset(gpu); }

polypath_status polypath_comm_abort(polypath_comm* comm, const char* reason) {
  return guarded([&] {
    local_of(comm).abort(reason == nullptr
                             ? "rank " + std::to_string(polypath_comm_rank(comm)) + " called abort"
                             : std::string(reason));
  });
}

polypath_status polypath_comm_check(polypath_comm* comm) {
  return guarded([&] { local_of(comm).check(); });
}

polypath_status polypath_comm_synchronize(polypath_comm* comm, void* stream) {
  return guarded([&] {
    const Communicator& local = local_of(comm);
    const CudaDriver& driver = local.driver();
    const CurrentContext current(driver, local.context());
    if (comm->nodes != nullptr)
      while (driver.stream_query(stream_of(stream)) == CUDA_ERROR_NOT_READY &&
             comm->nodes->engine->progress())
        std::this_thread::yield();
    POLYPATH_CHECK(driver, stream_synchronize(stream_of(stream)));
    local.check();
  });
}

int polypath_comm_rank(const polypath_comm* comm) {
  if (comm == nullptr) return -1;
  return comm->nodes != nullptr ? comm->nodes->map.rank : comm->communicator->rank();
}

int polypath_comm_size(const polypath_comm* comm) {
  if (comm == nullptr) return -1;
  return comm->nodes != nullptr ? comm->nodes->map.size() : comm->communicator->size();
}

int polypath_comm_node_count(const polypath_comm* comm) {
  if (comm == nullptr) return -1;
  return comm->nodes != nullptr ? comm->nodes->map.nodes : 1;
}

int polypath_comm_gpu(const polypath_comm* comm, int rank) {
  if (rank < 0 || rank >= polypath_comm_size(comm)) return -1;
  if (comm->nodes == nullptr) return comm->communicator->gpu_of(rank);
  const NodeMap& map = comm->nodes->map;
  return map.node_of(rank) == map.node() ? comm->communicator->gpu_of(map.local_of(rank)) : -1;
}

polypath_status polypath_comm_host_all_gather(polypath_comm* comm, const void* local, void* all,
                                              size_t bytes) {
  return guarded([&] {
    Communicator& communicator = communicator_of(comm);
    require((local != nullptr && all != nullptr) || bytes == 0, "local or all is null");
    communicator.exchange(
        {static_cast<const std::byte*>(local), bytes},
        {static_cast<std::byte*>(all), bytes * static_cast<std::size_t>(communicator.size())});
  });
}

polypath_status polypath_comm_alloc(polypath_comm* comm, size_t bytes,
                                    polypath_symmetric** memory) {
  return guarded([&] {
    require(memory != nullptr, "memory is null");
    *memory = alloc_memory(comm, bytes);
  });
}

polypath_status polypath_comm_alloc_all(polypath_comm* const* comms, int count, size_t bytes,
                                        polypath_symmetric** memories) {
  return guarded([&] {
    require_all(comms, count);
    require(memories != nullptr, "memories is null");
    on_threads(count, [&](std::size_t i) { memories[i] = alloc_memory(comms[i], bytes); });
  });
}

polypath_status polypath_comm_free(polypath_comm* comm, polypath_symmetric* memory) {
  return guarded([&] {
    require(memory != nullptr, "memory is null");
    free_memory(comm, memory);
  });
}

polypath_status polypath_comm_free_all(polypath_comm* const* comms, int count,
                                       polypath_symmetric* const* memories) {
  return guarded([&] {
    require_all(comms, count);
    require(memories != nullptr, "memories is null");
    for (int i = 0; i < count; ++i) require(memories[i] != nullptr, "one of memories is null");
    on_threads(count, [&](std::size_t i) { free_memory(comms[i], memories[i]); });
  });
}

void* polypath_symmetric_address(const polypath_symmetric* memory, int rank) {
  if (memory == nullptr || rank < 0 || rank >= memory->memory.size()) return nullptr;
  return reinterpret_cast<void*>(memory->memory.address(rank));
}

size_t polypath_symmetric_bytes(const polypath_symmetric* memory) {
  return memory == nullptr ? 0 : memory->memory.bytes();
}

polypath_status polypath_comm_put(polypath_comm* comm, int to, const polypath_symmetric* memory,
                                  size_t offset, const void* src, size_t bytes, void* stream) {
  return guarded([&] {
    communicator_of(comm).put(put_of(to, memory, offset, src, bytes), stream_of(stream));
  });
}

polypath_status polypath_comm_put_signal(polypath_comm* comm, int to,
                                         const polypath_symmetric* memory, size_t offset,
                                         const void* src, size_t bytes,
                                         const polypath_signal* signal, void* stream) {
  return guarded([&] {
    communicator_of(comm).put(put_of(to, memory, offset, src, bytes), signal_of(signal),
                              stream_of(stream));
  });
}

polypath_status polypath_comm_put_group(polypath_comm* comm, const polypath_put* puts, size_t count,
                                        void* stream) {
  return polypath_comm_put_and_wait(comm, puts, count, nullptr, 0, stream);
}

polypath_status polypath_comm_put_and_wait(polypath_comm* comm, const polypath_put* puts,
                                           size_t count, const polypath_signal* awaited,
                                           size_t awaited_count, void* stream) {
  return guarded([&] {
    Communicator& communicator = communicator_of(comm);
    require(puts != nullptr || count == 0, "puts is null");
    require(awaited != nullptr || awaited_count == 0, "awaited is null");
    std::vector<PutWithSignal> group;
    group.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const polypath_put& entry = puts[i];
      group.push_back({put_of(entry.to, entry.memory, entry.offset, entry.src, entry.bytes), {}});
      if (entry.signal != nullptr) group.back().then.emplace(signal_of(entry.signal));
    }
    std::vector<Signal> words;
    words.reserve(awaited_count);
    for (std::size_t i = 0; i < awaited_count; ++i) words.push_back(signal_of(&awaited[i]));
    communicator.put_group(group, words, stream_of(stream));
  });
}

polypath_status polypath_comm_signal(polypath_comm* comm, int to, const polypath_signal* signal,
                                     void* stream) {
  return guarded([&] { communicator_of(comm).signal(to, signal_of(signal), stream_of(stream)); });
}

polypath_status polypath_comm_wait_signal(polypath_comm* comm, const polypath_signal* signal,
                                          void* stream) {
  return guarded([&] { communicator_of(comm).wait_signal(signal_of(signal), stream_of(stream)); });
}

polypath_status polypath_comm_wait_context(polypath_comm* comm, void* wait_ctx, size_t bytes) {
  return guarded([&] {
    const Communicator& communicator = communicator_of(comm);
    require(wait_ctx != nullptr, "patience is null");
    require(bytes == sizeof(wait_context),
            "bytes is not the size of polypath::device::Patience: the headers are of another "
            "version");
    const wait_context ctx = communicator.program_wait_context();
    std::memcpy(wait_ctx, &ctx, sizeof ctx);
  });
}

polypath_status polypath_comm_barrier(polypath_comm* comm, void* stream) {
  return guarded([&] { communicator_of(comm).barrier(stream_of(stream)); });
}
