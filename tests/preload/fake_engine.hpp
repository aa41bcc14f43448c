// A libpolypath.so.0 that keeps what the shim tells it and answers as a test says. It lies in a folder of its own,
// with the shim beside it.
#pragma once

#include <dlfcn.h>

#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "polypath/polypath.h"

namespace polypath::preload::test {

struct FakeEngine {
  struct Copy {
    const void* dst;
    const void* src;
    std::size_t bytes;
    void* stream;

    bool operator==(const Copy&) const = default;
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
  polypath_thresholds thresholds{1 << 20, 1 << 20, 1 << 20};
  std::function<void()> during_create = [] {};
  std::function<void()> during_copy = [] {};
  std::function<void(const std::string& what)> during_import = [](const std::string&) {};

  // What it was told.
  std::mutex mutex;  ///< guards these
  int created = 0;
  std::vector<Copy> copies;
  std::vector<std::string> imports;  ///< "exported", "imported", "closed"
};

/// The one that the shim of this process uses.
inline FakeEngine& fake_engine() {
  static FakeEngine& found = [&]() -> FakeEngine& {
    void* const library = dlopen(POLYPATH_FAKE_ENGINE, RTLD_NOW);
    if (library == nullptr) throw std::runtime_error(dlerror());
    return *reinterpret_cast<FakeEngine* (*)()>(dlsym(library, "fake_engine"))();
  }();
  return found;
}

}  // namespace polypath::preload::test
