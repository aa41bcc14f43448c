#include "gate/text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/sigpipe_guard.hpp"

namespace polypath::gate {
namespace {

constexpr const char* kNames[] = {"debug", "info", "warn", "error", "off"};

/// What cannot be read is the library's to complain about.
LogLevel wanted_level() noexcept {
  const char* const text = std::getenv("POLYPATH_LOG_LEVEL");
  for (std::uint8_t i = 0; text != nullptr && i < sizeof kNames / sizeof *kNames; ++i)
    if (std::strcmp(text, kNames[i]) == 0) return static_cast<LogLevel>(i);
  return LogLevel::warn;
}

}  // namespace

Text::~Text() { std::free(data_); }

bool Text::reserve(std::size_t more) noexcept {
  if (capacity_ - size_ >= more) return true;
  const std::size_t capacity = (size_ + more) * 2;
  char* const grown = static_cast<char*>(std::realloc(data_, capacity));
  is_cut_ = is_cut_ || grown == nullptr;
  if (grown == nullptr) return false;
  data_ = grown;
  capacity_ = capacity;
  return true;
}

void Text::append(const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  append_list(format, arguments);
  va_end(arguments);
}

void Text::append_list(const char* format, va_list arguments) noexcept {
  va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (length < 0 || !reserve(static_cast<std::size_t>(length) + 1)) return;
  std::vsnprintf(data_ + size_, capacity_ - size_, format, arguments);
  size_ += static_cast<std::size_t>(length);
}

void Text::append_quoted(const char* text) noexcept {
  append("\"");
  for (std::size_t left = std::strlen(text); left > 0;) {
    const auto c = static_cast<unsigned char>(*text);
    const std::size_t length = utf8_length(text, left);
    if (c == '"' || c == '\\')
      append("\\%c", c);
    else if (length == 0 || c < 0x20 || c == 0x7F)
      append("\\u%04x", c);
    else
      append("%.*s", static_cast<int>(length), text);
    const std::size_t done = length == 0 ? 1 : length;
    text += done;
    left -= done;
  }
  append("\"");
}

bool Text::write_to(int file) const noexcept {
  const SigpipeGuard guard;
  for (std::size_t done = 0; done < size_;) {
    const ssize_t written = write(file, data_ + done, size_ - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return true;
}

std::size_t utf8_length(const char* text, std::size_t size) noexcept {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (size == 0) return 0;
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || size < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Longer than need be, of a surrogate, or after the last character.
  const unsigned char second = byte(1);
  const bool is_none = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                       (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return is_none ? 0 : length;
}

std::size_t whole_characters(const char* text, std::size_t size) noexcept {
  // A cut character has a first byte, and up to two more.
  for (std::size_t back = 1; back <= 3 && back <= size; ++back) {
    const auto c = static_cast<unsigned char>(text[size - back]);
    if (c < 0x80) return size;
    if (c < 0xC0) continue;
    const std::size_t length = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    return length > back ? size - back : size;
  }
  return size;
}

bool replace_file(const char* name, const Text& text) noexcept {
  char part[4096];
  const int length = std::snprintf(part, sizeof part, "%s.part", name);
  if (length < 0 || static_cast<std::size_t>(length) >= sizeof part) return false;
  const int file = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return false;
  const bool is_written = text.is_whole() && text.write_to(file);
  const bool is_kept = close(file) == 0 && is_written && std::rename(part, name) == 0;
  if (!is_kept) unlink(part);
  return is_kept;
}

void log_line(LogLevel level, const char* format, ...) noexcept {
  if (level < wanted_level() || level == LogLevel::off) return;
  Text line;
  line.append("polypath: %s: ", kNames[static_cast<std::uint8_t>(level)]);
  va_list arguments;
  va_start(arguments, format);
  line.append_list(format, arguments);
  va_end(arguments);
  line.append("\n");
  line.write_to(STDERR_FILENO);
}

}  // namespace polypath::gate
