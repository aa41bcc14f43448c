#include "mpi/mpi_statistics.hpp"

#include <cstdio>
#include <initializer_list>

#include "cuda/statistics.hpp"
#include "gate/report.hpp"

namespace polypath::preload::mpi {
namespace {

constexpr std::size_t kReasonCount = sizeof kReasonTexts / sizeof *kReasonTexts;
using Counts = CollectiveCounts<kReasonCount>;

constinit Counts counts[kFunctionCount]{};
constinit Count agreements{0};
constinit Count node_communicators{0};
constinit Count node_messages{0};
constinit Count node_bytes{0};
constinit Count communicators{0};
constinit Count refusals{0};
constinit char first_refusal[512]{};

void add(Count& count, std::uint64_t more = 1) noexcept {
  if (are_statistics_wanted()) count.fetch_add(more, std::memory_order_relaxed);
}

Counts& counts_of(Function function) noexcept { return counts[static_cast<std::size_t>(function)]; }

const char* text_of(std::size_t reason) noexcept { return kReasonTexts[reason]; }

const char* family_name() noexcept {
  switch (library().family) {
    case Family::unknown: return "unknown";
    case Family::open_mpi: return "Open MPI";
    case Family::mpich: return "MPICH";
    case Family::standard: return "standard ABI";
  }
  return "?";
}

}  // namespace

void count_call(Function function, std::uint64_t bytes) noexcept {
  add(counts_of(function).begun);
  add(counts_of(function).bytes, bytes);
}

void count_outcome(Function function, Reason reason) noexcept {
  add(counts_of(function).outcomes[static_cast<std::size_t>(reason)]);
}

void count_staged(Function function) noexcept { add(counts_of(function).staged); }
void count_agreement() noexcept { add(agreements); }
void count_communicator(int nodes) noexcept {
  add(communicators);
  if (nodes > 1) add(node_communicators);
}
void count_sent(std::uint64_t bytes) noexcept {
  add(node_messages);
  add(node_bytes, bytes);
}

void count_refusal(const char* why) noexcept {
  if (refusals.fetch_add(1, std::memory_order_relaxed) == 0)
    std::snprintf(first_refusal, sizeof first_refusal, "%s", why);
}

bool saw_calls() noexcept {
  for (const Counts& entry : counts)
    if (entry.calls() != 0) return true;
  return false;
}

void append_json(Text& out) noexcept {
  JsonList report(out, "{}");
  report.add_text("library", family_name());
  report.add_bool("takes_device_memory", library().takes_device_memory);
  report.add("communicators", value(communicators));
  report.add("refused", value(refusals));
  report.add_text("refusal", value(refusals) != 0 ? first_refusal : nullptr);
  report.add("agreements", value(agreements));
  report.key("between_nodes");
  {
    JsonList nodes(out, "{}");
    nodes.add("communicators", value(node_communicators));
    nodes.add("messages", value(node_messages));
    nodes.add("bytes", value(node_bytes));
  }
  report.key("calls");
  JsonList functions(out, "{}", "\n   ");
  for (std::size_t i = 0; i < kFunctionCount; ++i)
    counts[i].append_json(out, functions, kFunctionNames[i], "to_mpi", true, &text_of);
}

void append_lines(Text& out) noexcept {
  for (std::size_t i = 0; i < kFunctionCount; ++i) {
    const auto append_reason = [&](const char* text, unsigned long long count) {
      out.append("%s %llu", text, count);
    };
    if (!counts[i].append_line(out, kFunctionNames[i], "MPI", &text_of, append_reason)) continue;
    if (value(counts[i].staged) != 0)
      out.append("; %llu staged in host memory", value(counts[i].staged));
    out.append("\n");
  }
  if (value(node_messages) != 0)
    out.append("  between nodes: %llu messages, %.1f MiB\n", value(node_messages),
               static_cast<double>(value(node_bytes)) / (1 << 20));
  if (value(refusals) != 0) out.append("  no communicator of MPI's ranks: %s\n", first_refusal);
}

void forget_counts() noexcept {
  for (Counts& entry : counts) entry.clear();
  for (Count* const count :
       {&agreements, &node_communicators, &node_messages, &node_bytes, &communicators, &refusals})
    count->store(0);
}

}  // namespace polypath::preload::mpi
