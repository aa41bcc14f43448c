#include "instance.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "base/error.hpp"
#include "driver.hpp"
#include "failure.hpp"
#include "topology/node_file.hpp"

namespace polypath::sim {
namespace {

std::mutex instance_mutex;
std::atomic<Driver*> instance{nullptr};

// Set in a forked child. Its copy of the driver has no threads, and perhaps a lock that no thread
// will open.
std::atomic<bool> is_orphaned{false};
Driver* abandoned = nullptr;  // kept reachable

void abandon() {
  is_orphaned.store(true);
  abandoned = instance.exchange(nullptr);
}

}  // namespace

void initialise_driver() {
  require(!is_orphaned.load(), CUDA_ERROR_NOT_INITIALIZED);
  const std::lock_guard lock(instance_mutex);
  if (instance.load() != nullptr) return;
  const char* const name = std::getenv("POLYPATH_NODE");
  if (name == nullptr || *name == '\0') {
    std::fprintf(stderr, "polypath_sim: POLYPATH_NODE names no node (a name or a file)\n");
    throw Failure{CUDA_ERROR_NO_DEVICE};
  }
  try {
    // Never destroyed: the program's own destructors may still call.
    instance.store(new Driver(read_node_file(find_node_file(name)), read_mode()));
  } catch (const Error& error) {
    std::fprintf(stderr, "polypath_sim: %s\n", error.what());
    throw Failure{CUDA_ERROR_NO_DEVICE};
  }
}

Driver& driver_instance() {
  Driver* const driver = instance.load(std::memory_order_acquire);
  require(driver != nullptr, CUDA_ERROR_NOT_INITIALIZED);
  return *driver;
}

void forbid_children() {
  static const int once = ::pthread_atfork(nullptr, nullptr, abandon);
  require(once == 0, CUDA_ERROR_OUT_OF_MEMORY);
}

}  // namespace polypath::sim
