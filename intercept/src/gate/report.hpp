// The report of an interceptor at the end of a process (POLYPATH_STATS): JSON or lines, and where
// it goes; and what both reports of collectives count. Any thread counts.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "gate/text.hpp"

namespace polypath::gate {

using Count = std::atomic<std::uint64_t>;

inline unsigned long long value(const Count& count) noexcept {
  return count.load(std::memory_order_relaxed);
}

/// An object or an array of JSON: its brackets, and the commas between its members. `between` goes
/// before each member, such as a line end.
class JsonList {
 public:
  JsonList(Text& out, const char (&brackets)[3], const char* between = " ") noexcept
      : out_(out), end_(brackets[1]), between_(between) {
    out_.append("%c", brackets[0]);
  }
  ~JsonList() { out_.append("%c", end_); }
  JsonList(const JsonList&) = delete;
  JsonList& operator=(const JsonList&) = delete;

  /// Begins a member of an array; the caller writes its value.
  void item() noexcept;
  /// Begins a member of an object; the caller writes its value.
  void key(const char* name) noexcept;
  void add(const char* name, std::uint64_t number) noexcept;
  void add_text(const char* name, const char* text) noexcept;  ///< null where `text` is null
  void add_bool(const char* name, bool is_true) noexcept;

 private:
  Text& out_;
  char end_;
  const char* between_;
  bool is_empty_ = true;
};

/// "  FUNCTION: N calls, X MiB".
void append_calls(Text& out, const char* function, std::uint64_t calls,
                  std::uint64_t bytes) noexcept;

/// The calls of one function, by what became of them: outcome 0, polypath carried them; others are
/// why they went to the library that the program called.
template <std::size_t kOutcomes>
struct CollectiveCounts {
  Count begun{0};  ///< 0: not counted, where all calls have an outcome
  Count bytes{0};
  Count staged{0};
  Count outcomes[kOutcomes]{};

  [[nodiscard]] std::uint64_t calls() const noexcept {
    std::uint64_t sum = 0;
    for (const Count& count : outcomes) sum += value(count);
    return std::max<std::uint64_t>(value(begun), sum);
  }

  void clear() noexcept {
    for (Count* const count : {&begun, &bytes, &staged}) count->store(0);
    for (Count& count : outcomes) count.store(0);
  }

  /// A member of `functions`, unless there were no calls. `library`: the key of the outcomes of
  /// which `name_of(index)` says the names.
  template <typename NameOf>
  void append_json(Text& out, JsonList& functions, const char* function, const char* library,
                   bool has_staged, NameOf&& name_of) const noexcept {
    if (calls() == 0) return;
    functions.key(function);
    JsonList members(out, "{}");
    members.add("calls", calls());
    members.add("bytes", value(bytes));
    members.add("taken", value(outcomes[0]));
    if (has_staged) members.add("staged", value(staged));
    members.key(library);
    JsonList reasons(out, "{}");
    for (std::size_t i = 1; i < kOutcomes; ++i)
      if (value(outcomes[i]) != 0) reasons.add(name_of(i), value(outcomes[i]));
  }

  /// A line, unless there were no calls; without its end. `append_reason(name, count)` writes one.
  template <typename NameOf, typename AppendReason>
  bool append_line(Text& out, const char* function, const char* library, NameOf&& name_of,
                   AppendReason&& append_reason) const noexcept {
    if (calls() == 0) return false;
    append_calls(out, function, calls(), value(bytes));
    out.append(", %llu taken", value(outcomes[0]));
    bool is_first = true;
    for (std::size_t i = 1; i < kOutcomes; ++i) {
      if (value(outcomes[i]) == 0) continue;
      if (is_first)
        out.append("; to %s: ", library);
      else
        out.append(", ");
      append_reason(name_of(i), value(outcomes[i]));
      is_first = false;
    }
    return true;
  }
};

/// Whether `setting`, of POLYPATH_STATS, asks for lines on stderr.
bool asks_for_lines(const char* setting) noexcept;

/// Writes the report: lines to stderr, JSON to the file that `setting` names. %p in the name is the
/// process id; without it ".<pid>" goes before the ending. `kind`, such as ".nccl", goes there as
/// well. Failures are logged.
void write_report(const Text& report, const char* setting, const char* kind) noexcept;

}  // namespace polypath::gate
