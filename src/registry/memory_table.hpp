// Which place of the registry file holds which record of this process: a pure decision, without the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "registry/layout.hpp"

namespace polypath {

/// Not thread-safe. Handles are unique in it, and so are base addresses.
class MemoryTable {
 public:
  struct Entry {
    MemoryRecord record;
    std::uint64_t sequence = 0;
  };
  struct Change {
    std::optional<std::uint32_t>
        cleared;                ///< this place now holds nothing; written before `written`
    std::uint32_t written = 0;  ///< this one the record
  };

  /// Takes `record` in, in place of the one with its handle and of the one with its base address: memory that
  /// was freed and allocated again has another handle, and the old one means nothing. When its bucket is full,
  /// the bucket's oldest record leaves.
  Change publish(const MemoryRecord& record);
  /// The place that the record of this base address had.
  std::optional<std::uint32_t> withdraw(std::uint64_t base);

  /// By place.
  [[nodiscard]] const std::map<std::uint32_t, Entry>& entries() const noexcept { return entries_; }

 private:
  [[nodiscard]] std::uint32_t choose(const IpcHandle& handle) const;
  void erase(std::uint32_t place);

  std::map<std::uint32_t, Entry> entries_;
  std::unordered_map<std::uint64_t, std::uint32_t> place_of_base_;
  std::uint64_t publications_ = 0;
};

}  // namespace polypath
