// What the tables of a profile have in common (tuned_transfer.hpp, tuned_collective.hpp,
// tuned_backend.hpp): a number by which an edit is recognised, and one entry for each thing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace polypath {

/// FNV-1a of words.
class EntryDigest {
 public:
  void mix(std::uint64_t word) noexcept {
    for (int i = 0; i < 8; ++i) hash_ = (hash_ ^ (word >> 8 * i & 0xff)) * 16777619u;
  }
  void mix_letters(std::string_view text) noexcept {
    for (const char c : text) mix(static_cast<unsigned char>(c));
  }
  /// Mixes texts one after the other.
  void mix_text(std::string_view text) noexcept {
    mix_letters(text);
    mix(text.size());
  }
  [[nodiscard]] std::uint32_t value() const noexcept { return hash_; }

 private:
  std::uint32_t hash_ = 2166136261u;
};

/// The entry of exactly this operation, these ranks and this size, or null.
template <typename Entry>
const Entry* known_entry(std::span<const Entry> all, std::string_view op, std::string_view ranks,
                         std::uint64_t bytes) {
  const auto same = std::ranges::find_if(all, [&](const Entry& candidate) {
    return candidate.op == op && candidate.ranks == ranks && candidate.bytes == bytes;
  });
  return same == all.end() ? nullptr : &*same;
}

/// Puts `entry` in the place of the entry for the same operation, ranks and size, or at the end.
template <typename Entry>
void put_entry(std::vector<Entry>& all, Entry entry) {
  const Entry* const same =
      known_entry(std::span<const Entry>(all), entry.op, entry.ranks, entry.bytes);
  if (same == nullptr)
    all.push_back(std::move(entry));
  else
    all[static_cast<std::size_t>(same - all.data())] = std::move(entry);
}

}  // namespace polypath
