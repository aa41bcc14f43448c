// The number by which a profile recognises an edit of an entry.
#pragma once

#include <cstdint>
#include <string_view>

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

}  // namespace polypath
