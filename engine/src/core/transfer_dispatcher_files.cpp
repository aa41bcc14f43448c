// Reads from a file to a GPU: by copy threads as transfers of pageable memory, or natively through
// memory of the process.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <memory>
#include <system_error>

#include "base/log.hpp"
#include "base/units.hpp"
#include "core/transfer_dispatcher.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

/// What a native read takes at once: it stays in the CPU's cache until the driver copies it.
constexpr std::uint64_t kNativePiece = 2 * kMiB;
/// What is read before it is asked again which routes are ready: some 3 ms over one link. Parts of
/// 64 MiB took a quarter longer than the whole, as threads wait for each other at the end of each
/// (2 x H200).
constexpr std::uint64_t kReadPart = 128 * kMiB;

[[noreturn]] void throw_unreadable(int descriptor, const std::string& why) {
  throw InvalidArgument(fmt::format("file descriptor {}: {}", descriptor, why));
}

}  // namespace

void check_file(const FileRead& read) {
  const int descriptor = read.file.descriptor;
  struct stat status{};
  if (fstat(descriptor, &status) != 0)
    throw_unreadable(descriptor, std::generic_category().message(errno));
  if (S_ISDIR(status.st_mode)) throw_unreadable(descriptor, "it is a directory");
  const int flags = fcntl(descriptor, F_GETFL);
  if ((flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH) != 0)
    throw_unreadable(descriptor, "it is not open for reading");
  if (lseek(descriptor, 0, SEEK_CUR) < 0)
    throw_unreadable(descriptor, "it has no positions, as a pipe has none");
  constexpr auto kLastPosition = static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  if (read.file.offset > kLastPosition || read.bytes > kLastPosition - read.file.offset)
    throw InvalidArgument(fmt::format("offset {} and bytes {} are past the end of any file",
                                      read.file.offset, read.bytes));
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (S_ISREG(status.st_mode) && read.file.offset + read.bytes > size)
    throw FileError(fmt::format("file descriptor {}: the file has {} bytes, fewer than {} + {}",
                                descriptor, size, read.file.offset, read.bytes));
}

void TransferDispatcher::read(const FileRead& read) {
  check_file(read);
  const auto ends = ends_of(read);
  if (const auto* const reason = std::get_if<NativeReason>(&ends))
    return read_natively(read, *reason);
  // Contexts of further GPUs take a second to be made, as a rule in the time of the first read. It
  // begins on the GPU's own link, and goes on over the routes that are ready by then.
  ThreadCopy how{.waits_for_link = true, .lacks_routes = true};
  for (std::uint64_t at = 0; at < read.bytes;) {
    const std::uint64_t left = read.bytes - at;
    FileRead part = read;
    part.file.offset += at;
    part.dst += at;
    part.bytes = how.lacks_routes && left >= 2 * kReadPart ? kReadPart : left;
    ResolvedTransfer transfer = std::get<ResolvedTransfer>(ends);
    transfer.transfer.dst = part.dst;
    transfer.transfer.bytes = transfer.request.bytes = part.bytes;
    bool midway = false;
    const auto reason = copy_by_threads(transfer, {nullptr, part.file}, how, midway);
    if (reason)
      read_natively(part, *reason);
    else
      how.is_further_part = true;
    at += part.bytes;
  }
}

std::variant<ResolvedTransfer, NativeReason> TransferDispatcher::ends_of(const FileRead& read) {
  try {
    auto ends = classifier_.ends_of(read);
    if (devices_.lost()) return NativeReason::context_reset;
    return ends;
  } catch (const DriverError& error) {
    log_info("native read instead: {}", error.what());
    return NativeReason::driver_error;
  }
}

void TransferDispatcher::read_natively(const FileRead& read, NativeReason reason) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (driver().stream_is_capturing != nullptr)
    POLYPATH_CHECK(driver(), stream_is_capturing(read.stream, &status));
  if (status != CU_STREAM_CAPTURE_STATUS_NONE)
    throw NotSupported("stream is in capture: a graph cannot read a file");
  const std::uint64_t size = std::min(read.bytes, kNativePiece);
  const auto piece = std::make_unique_for_overwrite<std::byte[]>(size);
  const auto from = reinterpret_cast<CUdeviceptr>(piece.get());
  for (std::uint64_t at = 0; at < read.bytes; at += size) {
    const std::uint64_t bytes = std::min(size, read.bytes - at);
    read_file(read.file, at, piece.get(), bytes);
    load_.note_copy(read.dst + at, from, bytes, read.stream);
    POLYPATH_CHECK(driver(), memcpy_async(read.dst + at, from, bytes, read.stream));
    // Where GPUs reach pageable memory the driver may return before it has read the piece.
    POLYPATH_CHECK(driver(), stream_synchronize(read.stream));
  }
  resources_.sequences().end(read.stream);
  counters_.count_native(reason, read.bytes);
}

}  // namespace polypath
