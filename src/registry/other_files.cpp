#include "registry/other_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "registry/file_name.hpp"

namespace polypath {
namespace {

/// Descriptors that may be kept open, in a program that has others to open.
constexpr std::size_t kMostFiles = 256;
/// By then whoever began to make a file has finished it or died.
constexpr std::int64_t kUnfinishedForS = 10;

std::int64_t nanoseconds(const timespec& time) noexcept {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Whether a file made from now on would give the folder another time than `changed`. The clock of files
/// stands still for milliseconds; one that was set back by more than a second is not waited for.
bool is_past(const timespec& changed) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  const std::int64_t since_ns = nanoseconds(now) - nanoseconds(changed);
  return since_ns > 0 || since_ns < -1'000'000'000;
}

/// Whether nobody will ever finish or use it.
bool is_left_behind(const OtherFile& file) noexcept {
  if (file.alive()) return false;
  return file.name().complete || file.age_s() > kUnfinishedForS;
}

}  // namespace

bool OtherFiles::refresh(const RegistryFolder& folder) {
  const auto changed = folder.changed();
  if (!changed) return false;
  if (settled_ && nanoseconds(*changed) == nanoseconds(changed_)) return true;
  settled_ = is_past(*changed);
  changed_ = *changed;
  const Descriptor opened = folder.open();
  const auto names = opened ? names_in(opened) : std::vector<std::string>();
  // Empty: this process has too many files open. What is known stays, and the next call tries again.
  settled_ = settled_ && !names.empty();
  if (!names.empty()) read_files(opened, names);
  return true;
}

void OtherFiles::read_files(const Descriptor& folder, const std::vector<std::string>& names) {
  std::vector<std::unique_ptr<OtherFile>> found;
  for (const std::string& text : names) {
    const auto name = parse_file_name(text);
    // A file of this process is never opened here: closing it would drop the lock that it lives by.
    if (!name || name->pid == getpid()) continue;
    auto file = take(*name);
    const bool is_new = file == nullptr;
    if (is_new) file = std::make_unique<OtherFile>(folder, *name, said_);
    if (const int error = file->open_error(); error != 0) {
      if (error == EMFILE || error == ENFILE) settled_ = false;
      continue;
    }
    if (is_left_behind(*file)) {
      unlinkat(folder.get(), text.c_str(), 0);
    } else if (name->complete && found.size() < kMostFiles) {
      if (is_new) file->check();
      found.push_back(std::move(file));
    } else if (name->complete && said_.first("too many")) {
      log_warn("registry: more than {} processes: the rest is left out", kMostFiles);
    }
  }
  files_ = std::move(found);
}

std::unique_ptr<OtherFile> OtherFiles::take(const RegistryFileName& name) {
  const auto at =
      std::ranges::find_if(files_, [&](const auto& file) { return file && file->name() == name; });
  return at == files_.end() ? nullptr : std::exchange(*at, nullptr);
}

std::optional<MemoryRecord> OtherFiles::find(const IpcHandle& handle) {
  for (const auto& file : files_)
    if (auto record = file->find(handle); record && file->alive()) return record;
  return std::nullopt;
}

void OtherFiles::clear() noexcept {
  files_.clear();
  settled_ = false;
}

void OtherFiles::append_flights(std::uint64_t now_ns, std::vector<Flight>& out) {
  for (const auto& file : files_) {
    const std::size_t before = out.size();
    file->append_flights(now_ns, out);
    if (out.size() > before && !file->alive()) out.resize(before);
  }
}

}  // namespace polypath
