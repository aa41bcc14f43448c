// Shows the figures of docs/cuda-notes.md again, on this machine's GPUs or on the simulated node that
// POLYPATH_NODE names.
#include <fmt/format.h>

#include <exception>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

std::string json_file(int argc, char** argv) {
  if (argc == 1) return {};
  if (argc == 3 && std::string_view(argv[1]) == "--json") return argv[2];
  throw InvalidArgument(fmt::format("usage: {} [--json FILE]", argv[0]));
}

void run(const std::string& file) {
  NodeSource source = open_node(load_options({}));
  nlohmann::json result = {{"schema", 1},
                           {"node",
                            {{"name", source.node.name},
                             {"gpus", source.node.gpus.size()},
                             {"simulated", source.simulated},
                             {"driver", source.driver_version}}}};
  fmt::print("{}, driver {}{}\n", source.node.name, source.driver_version,
             source.simulated ? ", times are virtual" : "");
  Workbench bench(std::move(source));
  Report report;
  for (const auto section : {call_costs, pointer_facts, default_streams, copy_gaps, staged_gaps,
                             graph_costs, host_links})
    section(bench, report);
  if (file.empty()) return;
  result.update(report.json());
  std::ofstream out(file);
  out << result.dump(1) << '\n';
  if (!out.flush()) throw Error("cannot write " + file);
}

}  // namespace
}  // namespace polypath::facts

int main(int argc, char** argv) {
  try {
    polypath::facts::run(polypath::facts::json_file(argc, argv));
    return 0;
  } catch (const polypath::InvalidArgument& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  } catch (const polypath::NoDevice& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
