#include "registry/peer_files.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <span>
#include <utility>

#include "base/log.hpp"

namespace polypath {
namespace {

/// A value that was being written is whole after some more looks; one that is not is damaged.
constexpr int kLooks = 16;

/// What one look reads of what a process has under way.
struct StoredTraffic {
  std::array<StoredFlight, kFlights> flights;
  std::array<StoredLoad, kLoads> loads;
};
static_assert(offsetof(StoredTraffic, loads) == kLoadsOffset - kFlightsOffset);

/// Reads what there is of `values`; the rest is zero, as what was never written.
template <typename Stored, std::size_t count>
void read(int descriptor, std::size_t offset, std::array<Stored, count>& values) noexcept {
  const auto bytes = std::as_writable_bytes(std::span(values));
  const ssize_t got = pread(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  std::ranges::fill(bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(got, 0))),
                    std::byte{});
}

/// Descriptors that may be kept open, in a program that has others to open.
constexpr std::size_t kMaxFiles = 256;
/// After this time a process that began to create a file has finished it or died.
constexpr std::int64_t kUnfinishedForS = 10;

std::int64_t nanoseconds(const timespec& time) noexcept {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Whether a file made from now on would give the folder another time than `changed`. The clock of
/// files stands still for milliseconds; one that was set back by more than a second is not waited
/// for.
bool is_past(const timespec& changed) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  const std::int64_t since_ns = nanoseconds(now) - nanoseconds(changed);
  return since_ns > 0 || since_ns < -1'000'000'000;
}

/// Whether no process will ever finish or use it.
bool is_left_behind(const PeerFile& file) noexcept {
  if (file.alive()) return false;
  return file.name().complete || file.age_s() > kUnfinishedForS;
}

}  // namespace

PeerFile::PeerFile(const Descriptor& folder, const RegistryFileName& name, LogOnce& log)
    : name_(name), said_(&log) {
  const std::string text = to_string(name);
  // O_NONBLOCK: opening does not wait, also if the name is not that of a regular file.
  descriptor_ = Descriptor::open(folder.get(), text.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor_) return;
  open_error_ = errno;
  if (open_error_ != ENOENT && said_->first("cannot be opened"))
    log_warn("registry: file {} cannot be opened: {}", text, std::strerror(open_error_));
}

void PeerFile::check() {
  const char* why = objection();
  readable_ = why == nullptr;
  if (!readable_ && said_->first(why))
    log_warn("registry: file {} {}: nothing is shared with its process", to_string(name_), why);
}

const char* PeerFile::objection() const noexcept {
  std::array<StoredHeader, 1> headers;
  read(descriptor_.get(), 0, headers);
  const StoredHeader& header = headers[0];
  if (header.magic == kRegistryMagic && header.version != kLayoutVersion)
    return "is of another version of polypath";
  const auto status = descriptor_.status();
  if (header.magic != kRegistryMagic || header.id != name_.id || !whole(header, name_.id) ||
      !status || static_cast<std::uint64_t>(status->st_size) != header.file_bytes)
    return "is damaged";
  return nullptr;
}

bool PeerFile::alive() const noexcept { return owner_lives(descriptor_.get()); }

std::int64_t PeerFile::age_s() const noexcept {
  const auto status = descriptor_.status();
  return status ? time(nullptr) - status->st_mtim.tv_sec : 0;
}

std::optional<MemoryRecord> PeerFile::find(const IpcHandle& handle) {
  std::optional<MemoryRecord> record;
  const std::size_t offset =
      kMemoryOffset + bucket_of(handle) * kBucketPlaces * sizeof(StoredMemory);
  read_until_intact([&] {
    std::array<StoredMemory, kBucketPlaces> places;
    read(descriptor_.get(), offset, places);
    bool all_whole = true;
    for (const StoredMemory& place : places) {
      if (place.sequence == 0) continue;
      const bool is_whole = whole(place, name_.id);
      if (is_whole && place.handle == handle) record = loaded(place);
      all_whole = all_whole && is_whole;
    }
    return all_whole || record;
  });
  return record;
}

void PeerFile::append_traffic(std::uint64_t now_ns, std::vector<InFlightTransfer>& flights,
                              std::vector<OtherLoad>& loads, bool all_loads) {
  const std::size_t flights_before = flights.size();
  const std::size_t loads_before = loads.size();
  read_until_intact([&] {
    flights.resize(flights_before);
    loads.resize(loads_before);
    std::array<StoredTraffic, 1> read_now;
    read(descriptor_.get(), kFlightsOffset, read_now);
    bool all_whole = true;
    for (const StoredFlight& place : read_now[0].flights) {
      if (place.until_ns <= now_ns) continue;
      const bool is_whole = whole(place, name_.id);
      if (is_whole) flights.push_back(loaded(place));
      all_whole = all_whole && is_whole;
    }
    for (const StoredLoad& place : read_now[0].loads) {
      if (place.gpu == GpuUuid{}) break;
      if (!all_loads && !place.to_host.counts_after(now_ns) &&
          !place.from_host.counts_after(now_ns))
        continue;
      const bool is_whole = whole(place, name_.id);
      if (is_whole) loads.push_back({static_cast<std::int32_t>(name_.pid), loaded(place)});
      all_whole = all_whole && is_whole;
    }
    return all_whole;
  });
}

template <typename Look>
void PeerFile::read_until_intact(Look look) {
  if (!readable_) return;
  for (int looks = 0; looks < kLooks; ++looks) {
    if (look()) {
      damaged_ = false;
      return;
    }
    if (damaged_) return;
    sched_yield();
  }
  damaged_ = alive();
  if (damaged_ && said_->first("damage inside"))
    log_warn("registry: file {} is damaged inside: that part of it is left out", to_string(name_));
}

bool PeerFiles::refresh(const RegistryFolder& folder) {
  const auto changed = folder.changed();
  if (!changed) return false;
  if (settled_ && nanoseconds(*changed) == nanoseconds(changed_)) return true;
  settled_ = is_past(*changed);
  changed_ = *changed;
  const Descriptor opened = folder.open();
  const auto names = opened ? names_in(opened) : std::vector<std::string>();
  // Empty: this process has too many files open. What is known stays, and the next call tries
  // again.
  settled_ = settled_ && !names.empty();
  if (!names.empty()) read_files(opened, names);
  return true;
}

void PeerFiles::read_files(const Descriptor& folder, const std::vector<std::string>& names) {
  std::vector<std::unique_ptr<PeerFile>> files;
  for (const std::string& text : names) {
    const auto name = parse_file_name(text);
    // A file of this process is never opened here: closing it would drop the lock that it lives by.
    if (!name || name->pid == getpid()) continue;
    auto file = take(*name);
    const bool is_new = file == nullptr;
    if (is_new) file = std::make_unique<PeerFile>(folder, *name, said_);
    if (const int error = file->open_error(); error != 0) {
      if (error == EMFILE || error == ENFILE) settled_ = false;
      continue;
    }
    if (is_left_behind(*file)) {
      unlinkat(folder.get(), text.c_str(), 0);
    } else if (name->complete && files.size() < kMaxFiles) {
      if (is_new) file->check();
      files.push_back(std::move(file));
    } else if (name->complete && said_.first("too many")) {
      log_warn("registry: more than {} processes: the rest is left out", kMaxFiles);
    }
  }
  files_ = std::move(files);
}

std::unique_ptr<PeerFile> PeerFiles::take(const RegistryFileName& name) {
  const auto at =
      std::ranges::find_if(files_, [&](const auto& file) { return file && file->name() == name; });
  return at == files_.end() ? nullptr : std::exchange(*at, nullptr);
}

std::optional<MemoryRecord> PeerFiles::find(const IpcHandle& handle) {
  for (const auto& file : files_)
    if (auto record = file->find(handle); record && file->alive()) return record;
  return std::nullopt;
}

void PeerFiles::clear() noexcept {
  files_.clear();
  settled_ = false;
}

void PeerFiles::append_traffic(std::uint64_t now_ns, std::vector<InFlightTransfer>& flights,
                               std::vector<OtherLoad>& loads, bool all_loads) {
  for (const auto& file : files_) {
    const std::size_t flights_before = flights.size();
    const std::size_t loads_before = loads.size();
    file->append_traffic(now_ns, flights, loads, all_loads);
    if (flights.size() == flights_before && loads.size() == loads_before) continue;
    if (file->alive()) continue;
    flights.resize(flights_before);
    loads.resize(loads_before);
  }
}

}  // namespace polypath
