#include "tune/profile_update.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <thread>

#include "base/log.hpp"

namespace polypath {
namespace {

namespace fs = std::filesystem;

/// The lock of a writer in a folder, if it could be taken in time. A process that holds it for long
/// is no writer of profiles (`flock . polypath tune`).
class FolderLock {
 public:
  FolderLock(const fs::path& folder, std::chrono::milliseconds longest_wait)
      : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    const auto end = std::chrono::steady_clock::now() + longest_wait;
    while (descriptor_ >= 0 && flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      if (std::chrono::steady_clock::now() > end) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ~FolderLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

/// A slip in an edit must not cost the other edits.
bool keep_aside(const fs::path& file, std::string* why) {
  const fs::path aside = file.string() + ".refused";
  *why = unusable_reason(file);
  if (why->empty()) *why = unusable_reason(aside);
  if (!why->empty()) return false;
  std::error_code failed;
  fs::rename(file, aside, failed);
  if (failed) {
    *why = fmt::format("cannot keep {} as {}: {}", file.string(), aside.string(), failed.message());
    return false;
  }
  log_warn("the profile that was not usable is kept as {}", aside.string());
  return true;
}

}  // namespace

bool add_to_profile(const fs::path& file, const Profile& known, const ProfileUpdate& news,
                    std::string* why, std::chrono::milliseconds longest_wait) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  std::error_code told_below;
  fs::create_directories(folder, told_below);
  const FolderLock lock(folder, longest_wait);
  std::optional<Profile> there = load_profile(file, known.fingerprint, why);
  if (!there) {
    if (!why->empty() && !keep_aside(file, why)) return false;
    return save_profile(file, known, why);
  }
  Profile all = known;
  if (!news.links) all.node = std::move(there->node);
  all.tables = std::move(there->tables);
  all.tables.merge(news.tables);
  return save_profile(file, all, why);
}

}  // namespace polypath
