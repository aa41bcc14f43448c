#include "cuda/statistics.hpp"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "cuda/engine.hpp"
#include "gate/report.hpp"
#include "mpi/mpi_statistics.hpp"

namespace polypath::preload {
namespace {

constexpr struct {
  ImportEvent event;
  const char* name;
} kImportEvents[] = {{ImportEvent::exported, "exported"},
                     {ImportEvent::imported, "imported"},
                     {ImportEvent::closed, "closed"},
                     {ImportEvent::refused, "refused"}};

constinit char setting[PATH_MAX]{};
constinit std::atomic_flag is_written = ATOMIC_FLAG_INIT;

unsigned long long number(std::uint64_t value) noexcept { return value; }

bool saw_calls() noexcept {
  for (const Symbol symbol : kSymbols)
    if (calls_of(symbol).calls != 0) return true;
  return mpi::saw_calls();
}

/// The command line, as the system has it; arguments that are too long are cut, before a character
/// of UTF-8 that does not fit.
void read_command(char* text, std::size_t size) noexcept {
  std::size_t length = 0;
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    const ssize_t got = read(file, text, size - 1);
    length = got > 0 ? static_cast<std::size_t>(got) : 0;
    close(file);
  }
  if (length == size - 1) length = whole_characters(text, length);
  while (length > 0 && text[length - 1] == '\0') --length;
  for (std::size_t i = 0; i < length; ++i)
    if (text[i] == '\0') text[i] = ' ';
  text[length] = '\0';
}

const char* name_of(Direction direction) noexcept {
  switch (direction) {
    case Direction::any: return "any";
    case Direction::gpu_to_gpu: return "gpu to gpu";
    case Direction::host_to_gpu: return "host to gpu";
    case Direction::gpu_to_host: return "gpu to host";
  }
  return "?";
}

/// Calls `each(name of the direction, rate)` for all rates with samples.
template <typename Each>
void for_rates(Each&& each) {
  for (const Direction direction : kDirections) {
    for (std::size_t size_class = 0; size_class < kSizeClasses; ++size_class) {
      for (const bool is_issued : {false, true}) {
        const Rate rate = rate_of(direction, size_class, is_issued);
        if (rate.count != 0) each(name_of(direction), rate);
      }
    }
  }
}

/// The counters of engines that were destroyed, oldest first.
constinit Text gone_counters;  ///< JSON values with commas between
constinit Text gone_reports;

/// What the engine says of itself, added to `out`; false when it says nothing.
bool append_answer(Text& out, const Engine& engine, decltype(Engine::counters) what) noexcept {
  char* text = nullptr;
  if (what(engine.context, &text) != POLYPATH_SUCCESS) return false;
  out.append("%s", text);
  engine.free_string(text);
  return true;
}

void append_calls_json(Text& out) noexcept {
  JsonList functions(out, "{}", "\n  ");
  for (const Symbol symbol : kSymbols) {
    const CallCounts counts = calls_of(symbol);
    if (counts.calls == 0) continue;
    functions.key(replaced(symbol).name);
    JsonList members(out, "{}");
    members.add("calls", counts.calls);
    members.add("bytes", counts.bytes);
    members.add("offloaded", counts.offloaded);
    members.add("issued", counts.issued);
  }
}

void append_rates_json(Text& out) noexcept {
  JsonList rates(out, "[]", "\n  ");
  for_rates([&](const char* direction, const Rate& rate) {
    rates.item();
    JsonList members(out, "{}");
    members.add_text("direction", direction);
    members.add("bytes", rate.bytes);
    members.add_bool("issued", rate.is_issued);
    members.add("count", rate.count);
    // Not "%.1f": the program's locale may have a decimal comma.
    const auto tenths = static_cast<unsigned long long>(rate.gbps * 10 + 0.5);
    members.key("gbps");
    out.append("%llu.%llu", tenths / 10, tenths % 10);
  });
}

void append_json(Text& out, const char* command) noexcept {
  {
    JsonList report(out, "{}", "\n ");
    report.add("pid", static_cast<std::uint64_t>(getpid()));
    report.add_text("command", command);
    report.key("calls");
    append_calls_json(out);
    report.key("imports");
    {
      JsonList imports(out, "{}");
      for (const auto& import : kImportEvents) imports.add(import.name, count_of(import.event));
    }
    report.key("rates");
    append_rates_json(out);
    report.key("mpi");
    if (mpi::saw_calls())
      mpi::append_json(out);
    else
      out.append("null");
    report.key("engine");
    const ApiScope engine(ApiScope::Start::no);
    if (!engine || !append_answer(out, *engine, engine->counters)) out.append("null");
    report.key("engines_before_resets");
    out.append("[%s]", gone_counters.c_str());
  }
  out.append("\n");
}

void append_lines(Text& out, const char* command) noexcept {
  out.append("polypath: process %d: %s\n", getpid(), command);
  for (const Symbol symbol : kSymbols) {
    const CallCounts counts = calls_of(symbol);
    if (counts.calls == 0) continue;
    append_calls(out, replaced(symbol).name, counts.calls, counts.bytes);
    out.append(", %llu handed over, %llu issued over several routes\n", number(counts.offloaded),
               number(counts.issued));
  }
  if (count_of(ImportEvent::exported) + count_of(ImportEvent::imported) != 0) {
    out.append("  memory of processes:");
    for (const auto& import : kImportEvents)
      out.append(" %llu %s", number(count_of(import.event)), import.name);
    out.append("\n");
  }
  for_rates([&](const char* direction, const Rate& rate) {
    out.append("  %s, from %g MiB, %s: %.1f GB/s (median, %llu sampled)\n", direction,
               static_cast<double>(rate.bytes) / (1 << 20),
               rate.is_issued ? "over several routes" : "native copies", rate.gbps,
               number(rate.count));
  });
  mpi::append_lines(out);
  out.append("%s", gone_reports.c_str());
  const ApiScope engine(ApiScope::Start::no);
  if (engine) append_answer(out, *engine, engine->counters_text);
}

}  // namespace

void read_report_setting() noexcept {
  const char* const requested = std::getenv("POLYPATH_STATS");
  if (requested == nullptr || *requested == '\0' || std::strlen(requested) >= sizeof setting)
    return;
  std::strcpy(setting, requested);
  want_statistics();
}

void keep_report_of(const Engine& engine) noexcept {
  if (!are_statistics_wanted()) return;
  if (*gone_counters.c_str() != '\0') gone_counters.append(",\n  ");
  if (!append_answer(gone_counters, engine, engine.counters)) gone_counters.append("null");
  append_answer(gone_reports, engine, engine.counters_text);
}

void write_report() noexcept {
  if (!saw_calls() || is_written.test_and_set()) return;
  char command[4096];
  read_command(command, sizeof command);
  Text out;
  if (asks_for_lines(setting))
    append_lines(out, command);
  else
    append_json(out, command);
  gate::write_report(out, setting, "");
}

}  // namespace polypath::preload
