#include "registry/other_file.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <span>

#include "base/log.hpp"
#include "registry/layout.hpp"
#include "registry/process_lock.hpp"

namespace polypath {
namespace {

/// A value that was being written is whole after some more looks; one that is not is damaged.
constexpr int kLooks = 16;

/// Reads what there is of `values`; the rest is zero, as what was never written.
template <typename Stored, std::size_t count>
void read(int descriptor, std::size_t offset, std::array<Stored, count>& values) noexcept {
  const auto bytes = std::as_writable_bytes(std::span(values));
  const ssize_t got = pread(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  std::ranges::fill(bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(got, 0))),
                    std::byte{});
}

}  // namespace

OtherFile::OtherFile(const Descriptor& folder, const RegistryFileName& name, SaidOnce& said)
    : name_(name), said_(&said) {
  const std::string text = to_string(name);
  // O_NONBLOCK: whatever bears the name, opening it does not wait.
  descriptor_ = Descriptor::open(folder.get(), text.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor_) return;
  open_error_ = errno;
  if (open_error_ != ENOENT && said_->first("cannot be opened"))
    log_warn("registry: file {} cannot be opened: {}", text, std::strerror(open_error_));
}

void OtherFile::check() {
  const char* why = objection();
  readable_ = why == nullptr;
  if (!readable_ && said_->first(why))
    log_warn("registry: file {} {}: nothing is shared with its process", to_string(name_), why);
}

const char* OtherFile::objection() const noexcept {
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

bool OtherFile::alive() const noexcept { return owner_lives(descriptor_.get()); }

std::int64_t OtherFile::age_s() const noexcept {
  const auto status = descriptor_.status();
  return status ? time(nullptr) - status->st_mtim.tv_sec : 0;
}

std::optional<MemoryRecord> OtherFile::find(const IpcHandle& handle) {
  std::optional<MemoryRecord> found;
  const std::size_t offset =
      kMemoryOffset + bucket_of(handle) * kBucketPlaces * sizeof(StoredMemory);
  look_until_whole([&] {
    std::array<StoredMemory, kBucketPlaces> places;
    read(descriptor_.get(), offset, places);
    bool all_whole = true;
    for (const StoredMemory& place : places) {
      if (place.sequence == 0) continue;
      const bool is_whole = whole(place, name_.id);
      if (is_whole && place.handle == handle) found = loaded(place);
      all_whole = all_whole && is_whole;
    }
    return all_whole || found;
  });
  return found;
}

void OtherFile::append_flights(std::uint64_t now_ns, std::vector<Flight>& out) {
  const std::size_t before = out.size();
  look_until_whole([&] {
    out.resize(before);
    std::array<StoredFlight, kFlights> places;
    read(descriptor_.get(), kFlightsOffset, places);
    bool all_whole = true;
    for (const StoredFlight& place : places) {
      if (place.until_ns <= now_ns) continue;
      const bool is_whole = whole(place, name_.id);
      if (is_whole) out.push_back(loaded(place));
      all_whole = all_whole && is_whole;
    }
    return all_whole;
  });
}

template <typename Look>
void OtherFile::look_until_whole(Look look) {
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

}  // namespace polypath
