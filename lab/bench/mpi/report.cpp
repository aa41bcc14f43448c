#include "report.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

namespace mpi_bench {
namespace {

double bytes_per_second(const Row& row) noexcept {
  return static_cast<double>(row.bytes) * static_cast<double>(row.messages) / row.seconds;
}

}  // namespace

Report::Report(const World& world, const Options& options, const std::string& name,
               Quantity quantity)
    : root_(world.root()), file_(options.json), quantity_(quantity) {
  const std::string_view memory = options.memory == MemoryKind::gpu ? "gpu" : "host";
  document_ = {{"program", name},       {"mpi", library_version()},
               {"ranks", world.size()}, {"pattern", to_string(options.pattern)},
               {"memory", memory},      {"rows", nlohmann::ordered_json::array()}};
  if (!root_) return;
  fmt::print("# {}: {} ranks, {}, {} memory, {}\n", name, world.size(), to_string(options.pattern),
             memory, library_version());
  fmt::print("# {}; verified: messages of which every byte was compared\n",
             quantity.hops == 0 ? "MB/s: 1e6 bytes/s, the sum over all ranks"
                                : "us: from a send to the end of its receive, the mean");
  fmt::print("{:<10}{:>12}{:>20}{:>12}\n", "# Window", "Size",
             quantity.hops == 0 ? "Bandwidth (MB/s)" : "Latency (us)", "Verified");
}

void Report::add(const Row& row) {
  const double microseconds = row.seconds * 1e6;
  const double shown =
      quantity_.hops == 0 ? bytes_per_second(row) / 1e6 : microseconds / quantity_.hops;
  nlohmann::ordered_json entry = {
      {"bytes", row.bytes}, {"window", row.window}, {"iterations", row.iterations}};
  if (quantity_.hops == 0)
    entry["gbps"] = bytes_per_second(row) / 1e9;
  else
    entry["latency_us"] = shown;
  entry["messages"] = row.messages;
  entry["verified"] = row.wrong == 0;
  document_["rows"].push_back(std::move(entry));
  if (!root_) return;
  const std::string verified =
      row.wrong == 0 ? fmt::format("{}", row.messages) : fmt::format("{} WRONG", row.wrong);
  fmt::print("{:<10}{:>12}{:>20.2f}{:>12}\n", row.window, row.bytes, shown, verified);
  std::fflush(stdout);
}

void Report::write() const {
  if (!root_ || file_.empty()) return;
  std::ofstream out(file_);
  out << document_.dump(1) << '\n';
  if (!out.flush()) throw std::runtime_error("cannot write " + file_);
}

}  // namespace mpi_bench
