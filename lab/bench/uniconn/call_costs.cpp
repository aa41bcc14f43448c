// What UNICONN's host calls cost over the same calls of a backend's library, where that library
// does nothing (idle/): CPU time, calls of the library, and allocations.
//
//   uniconn_call_costs [PAIRS]
//
// One rank sends to itself: groups of eight posts and their acknowledges, by UNICONN and by the
// library's own calls in alternation, and by those once more as a control. A JSON object a backend;
// times are medians, of one call. Counts do not depend on how busy the machine is.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <new>

#include "native_gpuccl.hpp"
#include "native_gpushmem.hpp"
#if defined(UNICONN_WITH_MPI) && UNICONN_WITH_MPI
#include "native_mpi.hpp"
extern unsigned long idle_mpi_calls;
#endif
#include "rows.hpp"

namespace {
unsigned long allocations = 0;
}

// Not inline: the compiler would see malloc() and delete as a pair that does not match.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace uniconn_bench {
namespace {

constexpr int kPosts = 8;
constexpr int kCalls = 2 * kPosts + 2;
constexpr int kGroups = 2000;
constexpr std::size_t kBytes = 4096;

struct Counted {
  double ns = 0;  ///< of a call
  unsigned long library_calls = 0;
  unsigned long allocations = 0;
};

template <typename Calls>
Counted groups(Calls& calls, void* sent, void* received, unsigned long (*library_calls)()) {
  const unsigned long before = library_calls();
  const unsigned long allocated = allocations;
  const auto began = std::chrono::steady_clock::now();
  for (int group = 0; group < kGroups; ++group) {
    calls.start();
    for (int post = 0; post < kPosts; ++post) {
      calls.post(sent, received, kBytes, 0, 0);
      calls.acknowledge(received, kBytes, 0, 0);
    }
    calls.end();
  }
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - began;
  return {spent.count() / kGroups / kCalls, library_calls() - before, allocations - allocated};
}

template <typename B>
void measure(int pairs, unsigned long (*library_calls)()) {
  const uc::Bootstrap bootstrap = B::bootstrap(0, nullptr);
  uc::Environment<B> env(bootstrap);
  env.SetDevice(0);
  const Gpu gpu;
  uc::Communicator<B> comm;
  ByUniconn<B> ours(comm, gpu);
  Native<B> native(bootstrap, 0, gpu);
  void* const sent = ours.allocate(kBytes);
  void* const received = ours.allocate(kBytes);
  void* const its_sent = native.allocate(kBytes);
  void* const its_came = native.allocate(kBytes);
  std::vector<double> ns, native_ns, more, control;
  Counted own_counts;
  Counted library_counts;
  for (int pair = -1; pair < pairs; ++pair) {
    own_counts = groups(ours, sent, received, library_calls);
    library_counts = groups(native, its_sent, its_came, library_calls);
    const Counted again = groups(native, its_sent, its_came, library_calls);
    if (pair < 0) continue;
    ns.push_back(own_counts.ns);
    native_ns.push_back(library_counts.ns);
    more.push_back(own_counts.ns - library_counts.ns);
    control.push_back(again.ns - library_counts.ns);
  }
  std::printf(
      "{\"backend\": \"%s\", \"calls\": %d, \"library_calls\": %lu, \"native_library_calls\": %lu, "
      "\"allocations\": %lu, \"ns\": %.2f, \"native_ns\": %.2f, \"more_ns\": %.2f, \"control_ns\": "
      "%.2f}\n",
      B::kName, kGroups * kCalls, own_counts.library_calls, library_counts.library_calls,
      own_counts.allocations, median(ns), median(native_ns), median(more), median(control));
}

#if !defined(UNICONN_WITH_MPI) || !UNICONN_WITH_MPI
/// The counter of a library that the program is linked with.
unsigned long (*counter(const char* name))() {
  void* const function = dlsym(RTLD_DEFAULT, name);
  if (function == nullptr) throw std::runtime_error(std::string("there is no ") + name);
  return reinterpret_cast<unsigned long (*)()>(function);
}
#endif

}  // namespace
}  // namespace uniconn_bench

int main(int argc, char** argv) {
  using namespace uniconn_bench;
  try {
    const int pairs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 31;
#if defined(UNICONN_WITH_MPI) && UNICONN_WITH_MPI
    setenv("POLYPATH_UNICONN_MPI", "gpu", 1);
    measure<uc::MPIBackend>(pairs, [] { return idle_mpi_calls; });
#else
    measure<uc::GpucclBackend>(pairs, counter("idle_nccl_calls"));
    measure<uc::GpushmemBackend>(pairs, counter("idle_nvshmem_calls"));
#endif
  } catch (const std::exception& error) {
    std::fprintf(stderr, "uniconn_call_costs: %s\n", error.what());
    return 1;
  }
}
