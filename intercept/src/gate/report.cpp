#include "gate/report.hpp"

#include <unistd.h>

#include <cstring>

namespace polypath::gate {

void JsonList::item() noexcept {
  if (!is_empty_) out_.append(",");
  if (!is_empty_ || *between_ == '\n') out_.append("%s", between_);
  is_empty_ = false;
}

void JsonList::key(const char* name) noexcept {
  item();
  out_.append_quoted(name);
  out_.append(": ");
}

void JsonList::add(const char* name, std::uint64_t number) noexcept {
  key(name);
  out_.append("%llu", static_cast<unsigned long long>(number));
}

void JsonList::add_text(const char* name, const char* text) noexcept {
  key(name);
  if (text != nullptr)
    out_.append_quoted(text);
  else
    out_.append("null");
}

void JsonList::add_bool(const char* name, bool is_true) noexcept {
  key(name);
  out_.append(is_true ? "true" : "false");
}

void append_calls(Text& out, const char* function, std::uint64_t calls,
                  std::uint64_t bytes) noexcept {
  out.append("  %s: %llu calls, %.1f MiB", function, static_cast<unsigned long long>(calls),
             static_cast<double>(bytes) / (1 << 20));
}

bool asks_for_lines(const char* setting) noexcept { return std::strcmp(setting, "text") == 0; }

void write_report(const Text& report, const char* setting, const char* kind) noexcept {
  if (asks_for_lines(setting)) {
    report.write_to(STDERR_FILENO);
    return;
  }
  const char* const slash = std::strrchr(setting, '/');
  const char* const mark = std::strstr(setting, "%p");
  const char* ending = std::strrchr(slash != nullptr ? slash : setting, '.');
  if (ending == nullptr || (mark != nullptr && mark > ending))
    ending = setting + std::strlen(setting);
  const auto length = [](const char* begin, const char* end) {
    return static_cast<int>(end - begin);
  };
  Text name;
  if (mark != nullptr)
    name.append("%.*s%d%.*s", length(setting, mark), setting, getpid(), length(mark + 2, ending),
                mark + 2);
  else
    name.append("%.*s.%d", length(setting, ending), setting, getpid());
  name.append("%s%s", kind, ending);
  if (!name.is_whole() || !replace_file(name.c_str(), report))
    log_line(LogLevel::warn, "the statistics cannot be written to %s", setting);
}

}  // namespace polypath::gate
