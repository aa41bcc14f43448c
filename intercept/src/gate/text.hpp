// Text that is put together in memory and then written whole.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdint>

namespace polypath::gate {

/// Grows as needed. Out of memory: it stays as it is, and is_whole() says so.
class Text {
 public:
  constexpr Text() noexcept = default;
  ~Text();
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  /// printf's format.
  [[gnu::format(printf, 2, 3)]] void append(const char* format, ...) noexcept;
  [[gnu::format(printf, 2, 0)]] void append_list(const char* format, va_list arguments) noexcept;
  /// As a JSON string, with its quotes. Bytes that are no UTF-8 are taken for Latin-1.
  void append_quoted(const char* text) noexcept;

  /// "" as long as nothing was added. Valid until more is.
  [[nodiscard]] const char* c_str() const noexcept { return data_ != nullptr ? data_ : ""; }
  [[nodiscard]] bool is_whole() const noexcept { return !is_cut_; }

  /// All of it, in as many writes as the system needs; false when it failed. A pipe without a
  /// reader is a failure, and no signal.
  bool write_to(int file) const noexcept;

 private:
  bool reserve(std::size_t more) noexcept;

  char* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  bool is_cut_ = false;
};

/// Bytes of the character of UTF-8 at the begin of `text`; 0: there is none.
std::size_t utf8_length(const char* text, std::size_t size) noexcept;
/// The size without a character at the end that has been cut.
std::size_t whole_characters(const char* text, std::size_t size) noexcept;

/// Writes the file anew, or not at all.
bool replace_file(const char* name, const Text& text) noexcept;

enum class LogLevel : std::uint8_t { debug, info, warn, error, off };

/// printf's format, without a line end.
[[gnu::format(printf, 2, 3)]] void log_line(LogLevel level, const char* format, ...) noexcept;

}  // namespace polypath::gate
