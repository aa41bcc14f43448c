#include "nccl/offload_policy.hpp"

#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "gate/report.hpp"
#include "nccl/engine.hpp"
#include "nccl/real_library.hpp"

namespace polypath::nccl {

using gate::JsonList;
using gate::Text;

namespace {

using Counts = gate::CollectiveCounts<std::size(kReasonTexts)>;
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

const char* reason_text(std::size_t reason) noexcept { return kReasonTexts[reason]; }

/// Calls `each(name, counts)` for all operations.
template <typename Each>
void for_operations(Each&& each) {
  for (std::size_t i = 0; i < kOperationCount; ++i)
    each(name_of(static_cast<Operation>(i)), counts.at(i));
}

void append_json(Text& out) noexcept {
  const RealNccl* const real = known_real_library();
  JsonList report(out, "{}");
  report.add_text("library", real != nullptr ? real->object->l_name : nullptr);
  report.add("version", static_cast<std::uint64_t>(real != nullptr ? real->version : 0));
  report.add("other_libraries", static_cast<std::uint64_t>(other_libraries()));
  report.add_bool("reproducible", settings().reproducible);
  {
    CommunicatorTotals& totals = communicators();
    const std::lock_guard lock(totals.mutex);
    report.add("communicators", totals.all);
    report.add("taken", totals.taken);
    report.key("refusals");
    JsonList refusals(out, "{}");
    for (const auto& [why, times] : totals.refusals) refusals.add(why.c_str(), times);
  }
  report.key("calls");
  JsonList functions(out, "{}", "\n  ");
  for_operations([&](const char* name, const Counts& entry) {
    entry.append_json(out, functions, name, "to_nccl", false, &reason_text);
  });
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
  for_operations([&](const char* name, const Counts& entry) {
    const auto append_reason = [&](const char* text, unsigned long long times) {
      out.append("%llu x %s", times, text);
    };
    if (entry.append_line(out, name, "NCCL", &reason_text, append_reason)) out.append("\n");
  });
}

/// The process that last made a communicator, or wanted to: children that it forks have its counts,
/// and do not report them once more.
std::atomic<pid_t> reporter{0};

void write_report() noexcept {
  if (reporter.load() != getpid()) return;
  const char* const setting = std::getenv("POLYPATH_STATS");
  if (setting == nullptr || *setting == '\0' || known_real_library() == nullptr) return;
  Text out;
  if (gate::asks_for_lines(setting)) {
    append_lines(out);
  } else {
    {
      JsonList report(out, "{}");
      report.add("pid", static_cast<std::uint64_t>(getpid()));
      report.add_text("command", program_invocation_name);
      report.key("nccl");
      append_json(out);
    }
    out.append("\n");
  }
  gate::write_report(out, setting, ".nccl");
}

}  // namespace

void count_call(Operation operation, DeclineReason reason, std::size_t bytes) noexcept {
  Counts& entry = counts[static_cast<std::size_t>(operation)];
  entry.outcomes[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
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
