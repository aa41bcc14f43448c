#include "registry/process_registry.hpp"

#include <atomic>

namespace polypath {
namespace {

/// A list without a lock, which a child could inherit locked. Entries stay: they may be asked for until the very
/// end of the process.
struct Shared {
  std::string folder;
  std::shared_ptr<Registry> registry;
  Shared* next = nullptr;
};
std::atomic<Shared*> all_shared{nullptr};

struct CloseAtExit {
  ~CloseAtExit() {
    for (Shared* shared = all_shared.load(); shared != nullptr; shared = shared->next)
      shared->registry->close();
  }
};

Shared* find_shared(Shared* from, const std::string& folder) {
  while (from != nullptr && from->folder != folder) from = from->next;
  return from;
}

}  // namespace

std::shared_ptr<Registry> process_registry(const std::string& setting) {
  static const CloseAtExit close_at_exit;
  const std::string folder = setting == "auto"  ? default_registry_folder()
                             : setting == "off" ? std::string()
                                                : setting;
  std::unique_ptr<Shared> made(new Shared{folder, std::make_shared<Registry>(folder), nullptr});
  Shared* first = all_shared.load();
  do {
    if (const Shared* shared = find_shared(first, folder)) return shared->registry;
    made->next = first;
  } while (!all_shared.compare_exchange_weak(first, made.get()));
  return made.release()->registry;
}

}  // namespace polypath
