#include "mpi/mpi_statistics.hpp"

#include <atomic>
#include <cstdio>

#include "cuda/statistics/statistics.hpp"

namespace polypath::preload::mpi {
namespace {

using Count = std::atomic<std::uint64_t>;

struct Counts {
  Count calls{0};
  Count bytes{0};
  Count staged{0};
  Count outcomes[kReasonCount]{};
};

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

unsigned long long value(const Count& count) noexcept {
  return count.load(std::memory_order_relaxed);
}

const char* family_name() noexcept {
  switch (library().family) {
    case Family::unknown: return "unknown";
    case Family::open_mpi: return "Open MPI";
    case Family::mpich: return "MPICH";
    case Family::standard: return "standard ABI";
  }
  return "?";
}

/// Calls `each(name, count)` for the reasons for which calls of a function went to MPI.
template <typename Each>
void for_reasons(const Counts& entry, Each&& each) noexcept {
  for (std::size_t i = 1; i < kReasonCount; ++i)
    if (value(entry.outcomes[i]) != 0)
      each(name_of(static_cast<Reason>(i)), value(entry.outcomes[i]));
}

}  // namespace

const char* name_of(Reason reason) noexcept {
  switch (reason) {
    case Reason::none: return "taken";
    case Reason::unknown_library: return "unknown MPI library";
    case Reason::no_elements: return "no elements";
    case Reason::one_rank: return "one rank";
    case Reason::intercommunicator: return "intercommunicator";
    case Reason::datatype_of_reduction: return "datatype not reduced";
    case Reason::operator_of_reduction: return "operator";
    case Reason::bad_root: return "root is no rank";
    case Reason::too_many_ranks: return "too many ranks on a node";
    case Reason::never_on_gpus: return "never GPU memory";
    case Reason::not_asked: return "not asked after host memory";
    case Reason::refused: return "no communicator";
    case Reason::lost: return "communicator lost";
    case Reason::switched_off: return "switched off";
    case Reason::host_memory: return "host memory";
    case Reason::managed_memory: return "managed memory";
    case Reason::other_gpu: return "another GPU";
    case Reason::other_context: return "not a primary context";
    case Reason::misaligned: return "misaligned";
    case Reason::short_buffer: return "beyond its allocation";
    case Reason::datatype: return "derived datatype";
    case Reason::no_engine: return "no engine";
    case Reason::no_memory: return "no memory for what is in place";
    case Reason::other_rank: return "another rank could not";
    case Reason::ranks_differ: return "arguments of ranks differ";
  }
  return "?";
}

void count_call(Function function, std::uint64_t bytes) noexcept {
  add(counts_of(function).calls);
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
    if (value(entry.calls) != 0) return true;
  return false;
}

void append_json(Text& out) noexcept {
  out.append("{\"library\": \"%s\", \"takes_device_memory\": %s, \"communicators\": %llu, ",
             family_name(), library().takes_device_memory ? "true" : "false", value(communicators));
  out.append("\"refused\": %llu, \"refusal\": ", value(refusals));
  if (value(refusals) != 0)
    out.append_quoted(first_refusal);
  else
    out.append("null");
  out.append(", \"agreements\": %llu,\n  \"between_nodes\": {\"communicators\": %llu, ",
             value(agreements), value(node_communicators));
  out.append("\"messages\": %llu, \"bytes\": %llu},\n  \"calls\": {", value(node_messages),
             value(node_bytes));
  const char* between = "";
  for (std::size_t i = 0; i < kFunctionCount; ++i) {
    const Counts& entry = counts[i];
    if (value(entry.calls) == 0) continue;
    out.append(
        "%s\n   \"%s\": {\"calls\": %llu, \"bytes\": %llu, \"taken\": %llu, \"staged\": %llu, "
        "\"to_mpi\": {",
        between, kFunctionNames[i], value(entry.calls), value(entry.bytes),
        value(entry.outcomes[0]), value(entry.staged));
    const char* comma = "";
    for_reasons(entry, [&](const char* name, unsigned long long count) {
      out.append("%s\"%s\": %llu", comma, name, count);
      comma = ", ";
    });
    out.append("}}");
    between = ",";
  }
  out.append("}}");
}

void append_lines(Text& out) noexcept {
  for (std::size_t i = 0; i < kFunctionCount; ++i) {
    const Counts& entry = counts[i];
    if (value(entry.calls) == 0) continue;
    out.append("  %s: %llu calls, %.1f MiB, %llu taken", kFunctionNames[i], value(entry.calls),
               static_cast<double>(value(entry.bytes)) / (1 << 20), value(entry.outcomes[0]));
    const char* between = "; to MPI: ";
    for_reasons(entry, [&](const char* name, unsigned long long count) {
      out.append("%s%s %llu", between, name, count);
      between = ", ";
    });
    if (value(entry.staged) != 0) out.append("; %llu staged in host memory", value(entry.staged));
    out.append("\n");
  }
  if (value(node_messages) != 0)
    out.append("  between nodes: %llu messages, %.1f MiB\n", value(node_messages),
               static_cast<double>(value(node_bytes)) / (1 << 20));
  if (value(refusals) != 0) out.append("  no communicator of MPI's ranks: %s\n", first_refusal);
}

void forget_counts() noexcept {
  const auto clear = [](Count& count) { count.store(0, std::memory_order_relaxed); };
  for (Counts& entry : counts) {
    clear(entry.calls);
    clear(entry.bytes);
    clear(entry.staged);
    for (Count& outcome : entry.outcomes) clear(outcome);
  }
  clear(agreements);
  clear(node_communicators);
  clear(node_messages);
  clear(node_bytes);
  clear(communicators);
  clear(refusals);
}

}  // namespace polypath::preload::mpi
