#include "exec/host_side.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/error.hpp"

namespace polypath {
namespace {

/// The system reads no more than 2 GiB at once.
constexpr std::uint64_t kMaxRead = std::uint64_t{1} << 30;

[[noreturn]] void throw_file_end(int descriptor, std::uint64_t read_end, std::uint64_t file_end) {
  struct stat status{};
  if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode))
    file_end = static_cast<std::uint64_t>(status.st_size);
  throw FileError(fmt::format("file descriptor {}: the file ends at byte {}, before byte {}",
                              descriptor, file_end, read_end));
}

}  // namespace

void read_file(const FilePart& part, std::uint64_t at, std::byte* to, std::uint64_t bytes) {
  std::uint64_t position = part.offset + at;
  const std::uint64_t end = position + bytes;
  while (position < end) {
    const ssize_t count = pread(part.descriptor, to, std::min(end - position, kMaxRead),
                                static_cast<off_t>(position));
    if (count == 0) throw_file_end(part.descriptor, end, position);
    if (count > 0) {
      position += static_cast<std::uint64_t>(count);
      to += count;
    } else if (errno != EINTR) {
      throw FileError(fmt::format("file descriptor {} cannot be read at byte {}: {}",
                                  part.descriptor, position,
                                  std::generic_category().message(errno)));
    }
  }
}

}  // namespace polypath
