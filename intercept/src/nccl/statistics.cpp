#include "nccl/statistics.hpp"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "gate/text.hpp"
#include "nccl/real_library.hpp"
#include "nccl/strict_mode.hpp"

namespace polypath::nccl {

using gate::Text;

namespace {

struct Counts {
  std::array<std::atomic<std::uint64_t>, kReasons> calls{};
  std::atomic<std::uint64_t> bytes{0};
};
std::array<Counts, kOperationCount> counts{};

struct CommunicatorTotals {
  std::mutex mutex;
  std::uint64_t all = 0;
  std::uint64_t taken = 0;
  std::map<std::string, std::uint64_t> refusals;
};
/// For good: threads may come here at the end.
CommunicatorTotals& communicators() {
  static auto& instance = *new CommunicatorTotals;
  return instance;
}

unsigned long long number(std::uint64_t value) noexcept { return value; }

std::uint64_t sum_of(const Counts& entry) noexcept {
  std::uint64_t sum = 0;
  for (const auto& calls : entry.calls) sum += calls.load();
  return sum;
}

template <typename Visit>
void for_reasons(const Counts& entry, Visit&& visit) {
  for (std::size_t reason = 1; reason < kReasons; ++reason)
    if (const std::uint64_t calls = entry.calls[reason].load(); calls != 0)
      visit(text_of(static_cast<DeclineReason>(reason)), number(calls));
}

void append_json(Text& out) noexcept {
  const RealNccl* const real = known_real_library();
  out.append("{\"library\": ");
  if (real != nullptr)
    out.append_quoted(real->object->l_name);
  else
    out.append("null");
  out.append(", \"version\": %d, \"other_libraries\": %d, \"reproducible\": %s",
             real != nullptr ? real->version : 0, other_libraries(),
             settings().reproducible ? "true" : "false");
  {
    CommunicatorTotals& totals = communicators();
    const std::lock_guard lock(totals.mutex);
    out.append(",\n \"communicators\": %llu, \"taken\": %llu, \"refusals\": {", number(totals.all),
               number(totals.taken));
    const char* between = "";
    for (const auto& [why, times] : totals.refusals) {
      out.append("%s", between);
      out.append_quoted(why.c_str());
      out.append(": %llu", number(times));
      between = ", ";
    }
  }
  out.append("},\n \"calls\": {");
  const char* between = "";
  for (std::size_t i = 0; i < kOperationCount; ++i) {
    const Counts& entry = counts[i];
    const std::uint64_t calls = sum_of(entry);
    if (calls == 0) continue;
    out.append("%s\n  \"%s\": {\"calls\": %llu, \"bytes\": %llu, \"taken\": %llu, \"to_nccl\": {",
               between, name_of(static_cast<Operation>(i)), number(calls),
               number(entry.bytes.load()), number(entry.calls[0].load()));
    const char* inner = "";
    for_reasons(entry, [&](const char* why, unsigned long long times) {
      out.append("%s\"%s\": %llu", inner, why, times);
      inner = ", ";
    });
    out.append("}}");
    between = ",";
  }
  out.append("}}");
}

void append_lines(Text& out) noexcept {
  const RealNccl* const real = known_real_library();
  if (real == nullptr) return;
  CommunicatorTotals& totals = communicators();
  out.append("polypath: process %d: NCCL %d.%d.%d, %s\n", getpid(), real->version / 10000,
             real->version / 100 % 100, real->version % 100, real->object->l_name);
  if (other_libraries() > 0) out.append("  other NCCLs, left alone: %d\n", other_libraries());
  {
    const std::lock_guard lock(totals.mutex);
    out.append("  communicators: %llu, of which polypath's as well: %llu\n", number(totals.all),
               number(totals.taken));
    for (const auto& [why, times] : totals.refusals)
      out.append("    %llu x %s\n", number(times), why.c_str());
  }
  for (std::size_t i = 0; i < kOperationCount; ++i) {
    const std::uint64_t calls = sum_of(counts[i]);
    if (calls == 0) continue;
    out.append("  %s: %llu calls, %.1f MiB, %llu taken", name_of(static_cast<Operation>(i)),
               number(calls), static_cast<double>(counts[i].bytes.load()) / (1 << 20),
               number(counts[i].calls[0].load()));
    const char* between = "; to NCCL: ";
    for_reasons(counts[i], [&](const char* why, unsigned long long times) {
      out.append("%s%llu x %s", between, times, why);
      between = ", ";
    });
    out.append("\n");
  }
}

/// "FILE.json" is "FILE.PID.nccl.json"; %p is the process's number.
std::string file_of(const std::string& setting) {
  const std::string pid = std::to_string(getpid());
  const std::size_t slash = setting.rfind('/');
  const std::size_t mark = setting.find("%p");
  std::size_t dot = setting.rfind('.');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) dot = setting.size();
  std::string name = setting.substr(0, dot);
  if (mark != std::string::npos && mark < dot)
    name.replace(mark, 2, pid);
  else
    name += "." + pid;
  return name + ".nccl" + setting.substr(dot);
}

/// The process that last made a communicator, or wanted to: children that it forks have its counts,
/// and do not report them once more.
std::atomic<pid_t> reporter{0};

void write_report() noexcept {
  if (reporter.load() != getpid()) return;
  const char* const setting = std::getenv("POLYPATH_STATS");
  if (setting == nullptr || *setting == '\0' || known_real_library() == nullptr) return;
  Text out;
  if (std::strcmp(setting, "text") == 0) {
    append_lines(out);
    out.write_to(STDERR_FILENO);
    return;
  }
  out.append("{\"pid\": %d, \"command\": ", getpid());
  out.append_quoted(program_invocation_name);
  out.append(", \"nccl\": ");
  append_json(out);
  out.append("}\n");
  const std::string name = file_of(setting);
  if (!gate::replace_file(name.c_str(), out))
    gate::log_line(gate::LogLevel::warn, "the statistics of NCCL cannot be written to %s",
                   name.c_str());
}

}  // namespace

void count_call(Operation operation, DeclineReason reason, std::size_t bytes) noexcept {
  Counts& entry = counts[static_cast<std::size_t>(operation)];
  entry.calls[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  entry.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void count_communicator(const std::string& refusal) noexcept {
  CommunicatorTotals& totals = communicators();
  const std::lock_guard lock(totals.mutex);
  ++totals.all;
  if (refusal.empty())
    ++totals.taken;
  else
    ++totals.refusals[refusal];
}

void report_at_exit() noexcept {
  reporter.store(getpid());
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(&write_report); });
}

}  // namespace polypath::nccl

std::size_t polypath_nccl_report(char* text, std::size_t size) noexcept {
  polypath::gate::Text out;
  polypath::nccl::append_json(out);
  const std::size_t length = std::strlen(out.c_str());
  if (text != nullptr && size > 0) {
    const std::size_t kept = std::min(length, size - 1);
    std::memcpy(text, out.c_str(), kept);
    text[kept] = '\0';
  }
  return length;
}
