// Shows the figures of docs/cuda-notes.md again, on this machine's GPUs or on the simulated node
// that POLYPATH_NODE names.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

struct Section {
  std::string_view name;
  void (*show)(Workbench&, Report&);
};

constexpr Section kSections[] = {
    {"call_costs", call_costs},         {"access_costs", access_costs},
    {"pointer_facts", pointer_facts},   {"copy_gaps", copy_gaps},
    {"between_copies", between_copies}, {"default_streams", default_streams},
    {"staged_gaps", staged_gaps},       {"graph_costs", graph_costs},
    {"host_links", host_links},         {"peer_stores", peer_stores},
    {"shared_gpu", shared_gpu},         {"calls_beside_kernels", calls_beside_kernels},
    {"held_queues", held_queues}};

struct Arguments {
  std::string json;
  std::string_view only;  ///< the name of one section; empty: all
};

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (i + 1 == argc || (option != "--json" && option != "--only"))
      throw InvalidArgument(fmt::format("usage: {} [--json FILE] [--only SECTION]", argv[0]));
    if (option == "--json") {
      arguments.json = argv[i + 1];
    } else {
      arguments.only = argv[i + 1];
    }
  }
  const auto is_it = [&](const Section& section) { return section.name == arguments.only; };
  if (!arguments.only.empty() && std::ranges::none_of(kSections, is_it))
    throw InvalidArgument(fmt::format("there is no section '{}'", arguments.only));
  return arguments;
}

void run(const Arguments& arguments) {
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
  for (const Section& section : kSections)
    if (arguments.only.empty() || section.name == arguments.only) section.show(bench, report);
  if (arguments.json.empty()) return;
  result.update(report.json());
  std::ofstream out(arguments.json);
  out << result.dump(1) << '\n';
  if (!out.flush()) throw Error("cannot write " + arguments.json);
}

}  // namespace
}  // namespace polypath::facts

int main(int argc, char** argv) {
  try {
    if (argc == 2 && argv[1] == std::string_view(polypath::facts::kShareGpu)) {
      polypath::facts::share_gpu(polypath::open_node(polypath::load_options({})));
    } else {
      polypath::facts::run(polypath::facts::read_arguments(argc, argv));
    }
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
