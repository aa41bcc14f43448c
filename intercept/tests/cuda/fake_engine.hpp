// A libpolypath.so.0 that keeps what the shim tells it and answers as a test says. It lies in a
// folder of its own, with the shim next to it.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "polypath/offload.h"

namespace polypath::preload::test {

struct FakeEngine {
  struct Copy {
    void* dst;
    const void* src;
    std::size_t bytes;
    void* stream;
    bool follows = false;  ///< asked by polypath_try_copy_sequenced_async

    bool operator==(const Copy&) const = default;
  };
  /// What it was told of memory that processes share.
  struct Import {
    std::string what;  ///< as in `imports`
    const void* address;
    const void* context;  ///< that was current

    bool operator==(const Import&) const = default;
  };
  enum class Answer {
    leave,   ///< to the driver
    take,    ///< and issue one copy of the driver's on the stream
    refuse,  ///< as an invalid argument: nothing is issued
    fail,    ///< midway
  };

  // What it answers.
  Answer answer = Answer::leave;
  int cuda_result = 0;  ///< of what failed
  polypath_status create_status = POLYPATH_SUCCESS;
  polypath_status import_status = POLYPATH_SUCCESS;
  polypath_thresholds thresholds{1 << 20, 1 << 20, 1 << 20, SIZE_MAX, SIZE_MAX};
  std::function<void()> during_create = [] {};
  std::function<void()> during_destroy = [] {};
  std::function<void()> during_copy = [] {};  ///< before each copy, those of groups as well
  std::function<void(const std::string& what)> during_import = [](const std::string&) {};

  // What it was told.
  std::mutex mutex;  ///< guards these
  int created = 0;
  std::vector<Copy> copies;           ///< those of groups as well
  std::vector<Copy> noted;            ///< native copies that it was told of
  std::vector<std::size_t> groups;    ///< how many copies each had
  std::vector<std::size_t> batches;   ///< how many copies each had
  std::vector<std::string> imports;   ///< "exported", "imported", "closed"
  std::vector<Import> imported;       ///< the same with where
  std::atomic<bool> is_alive{false};  ///< made, and not destroyed
  std::atomic<bool> is_retired{false};
};

/// The one that the shim of this process uses.
inline FakeEngine& fake_engine() {
  static FakeEngine& instance = [&]() -> FakeEngine& {
    void* const library = dlopen(POLYPATH_FAKE_ENGINE, RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(dlerror());
    return *reinterpret_cast<FakeEngine* (*)()>(dlsym(library, "fake_engine"))();
  }();
  return instance;
}

}  // namespace polypath::preload::test
