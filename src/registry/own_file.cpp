#include "registry/own_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.hpp"
#include "registry/file_name.hpp"
#include "registry/layout.hpp"
#include "registry/process_lock.hpp"

namespace polypath {
namespace {

std::uint64_t random_id() {
  std::uint64_t id = 0;
  if (getrandom(&id, sizeof id, 0) != sizeof id) throw Error("getrandom() failed");
  return id;
}

/// The header and all flights as an empty file has them: what a busy process writes most often then has its
/// memory already. Places of records take memory when they are used.
std::array<std::byte, kMemoryOffset> empty_head(std::uint64_t id) noexcept {
  std::array<std::byte, kMemoryOffset> head{};
  const StoredHeader header = stored_header(id);
  std::memcpy(head.data(), &header, sizeof header);
  return head;
}

/// Makes the empty file a complete one. The name of the call that failed, with errno; null: none did.
const char* lock_and_fill(int descriptor, std::uint64_t id) noexcept {
  // Past this limit the kernel answers with a signal.
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < kFileBytes) {
    errno = EFBIG;
    return "getrlimit(RLIMIT_FSIZE)";
  }
  if (!lock_for_life(descriptor)) return "fcntl(F_SETLK)";
  if (ftruncate(descriptor, kFileBytes) != 0) return "ftruncate";
  const auto head = empty_head(id);
  const ssize_t written = pwrite(descriptor, head.data(), head.size(), 0);
  if (written == static_cast<ssize_t>(head.size())) return nullptr;
  if (written >= 0) errno = ENOSPC;
  return "write";
}

}  // namespace

std::unique_ptr<OwnFile> OwnFile::create(const RegistryFolder& folder) {
  const Descriptor in = folder.open();
  if (!in) return nullptr;
  RegistryFileName name{.pid = getpid(), .id = random_id(), .complete = false};
  const std::string unfinished = to_string(name);
  Descriptor descriptor =
      Descriptor::open(in.get(), unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  const char* failed = descriptor ? lock_and_fill(descriptor.get(), name.id) : "open";
  name.complete = true;
  const std::string complete = to_string(name);
  if (failed == nullptr && renameat(in.get(), unfinished.c_str(), in.get(), complete.c_str()) != 0)
    failed = "rename";
  if (failed == nullptr)
    return std::unique_ptr<OwnFile>(
        new OwnFile(std::move(descriptor), name.id, folder.path() + "/" + complete));
  const int error = errno;
  unlinkat(in.get(), unfinished.c_str(), 0);
  if (error == ENOENT) return nullptr;
  throw Error(fmt::format("a file in {}: {}: {}", folder.path(), failed,
                          std::generic_category().message(error)));
}

OwnFile::~OwnFile() { unlink(path_.c_str()); }

bool OwnFile::lost() const noexcept {
  const auto status = descriptor_.status();
  return !status || status->st_nlink == 0 || status->st_size != static_cast<off_t>(kFileBytes);
}

bool OwnFile::write(std::size_t offset, const void* data, std::size_t bytes) noexcept {
  return pwrite(descriptor_.get(), data, bytes, static_cast<off_t>(offset)) ==
         static_cast<ssize_t>(bytes);
}

}  // namespace polypath
