#include "cuda/engine.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "cuda/intercepted.hpp"
#include "cuda/offload.hpp"
#include "cuda/program_memory.hpp"
#include "cuda/sequences.hpp"
#include "cuda/statistics.hpp"
#include "gate/process.hpp"
#include "gate/text.hpp"
#include "mpi/comm_state.hpp"

namespace polypath::preload {
namespace {

enum class State : std::uint8_t {
  untried,
  starting,  ///< by one thread
  ready,
  leaving,  ///< no thread enters any more
  gone,     ///< until the last reset under way is done, then untried again
  absent,   ///< permanently
};

constinit std::atomic<State> state{State::untried};
/// Threads that are inside, or look whether they may go in.
constinit std::atomic<int> inside{0};
/// The depth of this thread; above 0 its calls are the engine's own.
constinit thread_local int depth = 0;
constinit Engine engine{};
constinit void* engine_library = nullptr;

constexpr long kPauseUs = 50;

/// Resets that are under way.
constinit int resets = 0;
constinit pthread_mutex_t resets_mutex = PTHREAD_MUTEX_INITIALIZER;

/// What is opened later and written to at exit has to end after the report.
void report_before_later_exits() noexcept {
  if (are_statistics_wanted()) std::atexit(&write_report);
}

void in_child() noexcept {
  set_noting(false);
  if (state.load(std::memory_order_relaxed) != State::untried) {
    state.store(State::absent, std::memory_order_relaxed);
    set_thresholds(nullptr);
  }
  inside.store(0, std::memory_order_relaxed);
  resets = 0;
  resets_mutex = PTHREAD_MUTEX_INITIALIZER;
  forget_shared_memory();
  forget_mappings();
  forget_peer_access();
  forget_streams_in_child();
  forget_statistics();
  mpi::forget_counts();
}

void begin() noexcept {
  pthread_atfork(nullptr, nullptr, &in_child);
  read_report_setting();
  report_before_later_exits();
  set_thresholds_before_engine();
}

/// Once a process: the library stays.
bool is_library_there() noexcept {
  if (engine_library != nullptr) return true;
  void* const library = open_polypath(Folder::as_named, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) static_cast<PolypathApi&>(engine) = find_functions(library);
  if (engine.has_copies()) {
    engine_library = library;
    report_before_later_exits();
    return true;
  }
  const char* const why = dlerror();
  log_line(LogLevel::info, "copies stay the driver's: %s", why != nullptr ? why : "no libpolypath");
  return false;
}

bool make_engine(polypath_thresholds& thresholds) noexcept {
  if (!is_library_there()) return false;
  // Made in the middle of a program's call, perhaps while one of its streams is in capture.
  const RelaxedCapture relaxed;
  polypath_status status = engine.offload_acquire_context(&engine.context);
  if (status == POLYPATH_SUCCESS) status = engine.split_thresholds(engine.context, &thresholds);
  // No GPU is a normal answer; a setting that is not allowed is the user's mistake.
  if (status != POLYPATH_SUCCESS)
    log_line(status == POLYPATH_NO_DEVICE ? LogLevel::info : LogLevel::warn,
             "copies stay the driver's: %s", engine.last_error());
  return status == POLYPATH_SUCCESS;
}

/// The one thread that got from untried to starting. Its calls are the engine's own.
void start() noexcept {
  init_process();
  ++depth;
  polypath_thresholds thresholds{};
  if (make_engine(thresholds)) {
    set_thresholds(&thresholds);
    set_noting(true);
    register_recorded_memory(engine);
  } else {
    set_thresholds(nullptr);
    state.store(State::absent);
  }
  --depth;
}

/// Waits until the GPU is idle: routes over it then hold no bytes of other GPUs' transfers.
void finish_work_of(CUdevice gpu) noexcept {
  const PrimaryContext context(gpu);
  if (context.get() == nullptr) return;
  const InContext current(context.get());
  if (current.is_there()) driver::ctx_synchronize();
}

/// The one thread that got from ready to leaving.
void destroy_engine(CUdevice gpu) noexcept {
  while (inside.load() > 0) pause_us(kPauseUs);
  set_noting(false);
  ++depth;
  finish_work_of(gpu);
  mpi::abandon_communicators(gpu);
  keep_report_of(engine);
  engine.offload_retire_context();
  engine.offload_release_context(engine.context);
  --depth;
  keep_shared_memory();
  unshare_all_mappings();
  set_thresholds_before_engine();
  state.store(State::gone);
}

/// Tells libpolypath, which the program or libpolypath_nccl may have opened: its communicators,
/// before anything waits for the GPU, on which their kernels may wait for other ranks.
void announce_reset(CUdevice gpu) noexcept {
  void* const library = engine_library != nullptr
                            ? engine_library
                            : open_polypath(Folder::as_named, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return;
  const PolypathApi api = find_functions(library);
  ++depth;
  if (api.gpu_reset != nullptr) api.gpu_reset(gpu);
  if (api.offload_retire_context != nullptr) api.offload_retire_context();
  --depth;
}

bool change(State from, State to) noexcept { return state.compare_exchange_strong(from, to); }

}  // namespace

void init_process() noexcept {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, &begin);
}

ApiScope::ApiScope(Start start_it) noexcept : errno_(errno) {
  // What the engine reads and waits for are points of cancellation, within functions that throw
  // nothing: that would end the process.
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
  if (depth > 0) return;
  if (start_it == Start::yes && state.load() == State::untried &&
      change(State::untried, State::starting))
    start();
  // Announce, then check. The thread that releases the engine checks in the reverse order.
  inside.fetch_add(1);
  if (state.load() == State::ready) {
    engine_ = &engine;
    ++depth;
  } else {
    inside.fetch_sub(1);
  }
}

ApiScope::~ApiScope() {
  errno = errno_;
  if (engine_ != nullptr) {
    --depth;
    inside.fetch_sub(1);
  }
  int unused = 0;
  pthread_setcancelstate(cancel_state_, &unused);
}

const PolypathApi& polypath_api() noexcept { return engine; }

bool is_inside_engine() noexcept { return depth > 0; }

bool may_have_engine() noexcept { return depth == 0 && state.load() != State::absent; }

void publish_engine() noexcept { state.store(State::ready); }

ApiResetScope::ApiResetScope(CUdevice gpu) noexcept : is_inside_(depth > 0) {
  if (is_inside_) return;
  {
    const Lock lock(resets_mutex);
    ++resets;
  }
  for (;;) {
    const State seen = state.load();
    if (seen == State::gone || seen == State::absent) return;
    if (seen == State::untried && change(State::untried, State::gone)) return;
    if (seen == State::ready && change(State::ready, State::leaving))
      destroy_engine(gpu);
    else
      pause_us(kPauseUs);
  }
}

ApiResetScope::~ApiResetScope() {
  if (is_inside_) return;
  const Lock lock(resets_mutex);
  if (--resets == 0) change(State::gone, State::untried);
}

}  // namespace polypath::preload

using namespace polypath::preload;

namespace {

/// A reset takes the streams and the staging memory that the engine has on the GPU.
CUresult reset(Symbol symbol, CUdevice gpu) noexcept {
  init_process();
  count_call(symbol, 0);
  if (!is_inside_engine()) announce_reset(gpu);
  const ApiResetScope without(gpu);
  forget_peer_access_of(gpu);
  const CUresult result = call_driver(symbol, gpu);
  if (result == CUDA_SUCCESS) {
    forget_shared_memory_of(gpu);
    forget_streams();
  }
  return result;
}

}  // namespace

POLYPATH_INTERCEPTOR(cuDevicePrimaryCtxReset)(CUdevice gpu) {
  return reset(Symbol::cuDevicePrimaryCtxReset, gpu);
}

POLYPATH_INTERCEPTOR(cuDevicePrimaryCtxReset_v2)(CUdevice gpu) {
  return reset(Symbol::cuDevicePrimaryCtxReset_v2, gpu);
}
