// The host's side of a transfer that CPU threads copy: memory of the program, or a part of a file,
// from which threads read straight into pinned slots.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polypath {

/// The bytes of a file from `offset` on. The descriptor is its owner's.
struct FilePart {
  int descriptor = -1;
  std::uint64_t offset = 0;
};

struct HostSide {
  std::byte* memory = nullptr;  ///< null: it is `file`, to be read only
  FilePart file = {};

  [[nodiscard]] bool is_file() const noexcept { return memory == nullptr; }
};

/// Reads bytes [at, at + bytes) of the part, by pread(): threads may share the descriptor. Throws
/// FileError when the system refuses, or the file ends before.
void read_file(const FilePart& part, std::uint64_t at, std::byte* to, std::uint64_t bytes);

}  // namespace polypath
