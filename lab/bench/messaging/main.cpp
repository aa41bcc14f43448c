// Rates and latencies of what kernels send each other without the CPU, next to the limits of the
// hardware, every item checked.
//
//   messaging_bench [--what NAME] [--line LINE] [--gpus LIST] [--repetitions N] [--soak SECONDS]
//     [--limit SECONDS] [--quick 1]
//
// Prints a JSON object a line (bench.hpp). --what: a group below, or all. --line: the one of that
// name alone. --gpus: one or two, as polypath numbers them. --soak: each line is repeated for so
// long. --limit: a run that lasts longer ends the program (default 60), which says on stderr how
// far it came. Exit: 1 when a result was wrong, a line failed, or there is none of that name.
#include <array>
#include <cstdio>
#include <exception>
#include <string_view>

#include "arguments.hpp"
#include "groups.hpp"
#include "polypath/polypath.hpp"

namespace messaging_bench {
namespace {

struct Group {
  std::string_view name;
  void (*run)(Bench&);
};
constexpr std::array kGroups = {
    Group{"queue", queue_lines},    Group{"remote", remote_lines},
    Group{"remote", beside_lines},  Group{"match", match_lines},
    Group{"match", relaxed_lines},  Group{"active", active_lines},
    Group{"active", channel_lines}, Group{"active", patterns_lines},
    Group{"pool", pool_lines},      Group{"collectives", collectives_lines},
};

std::vector<int> numbers(const std::string& list) {
  std::vector<int> all;
  for (std::size_t at = 0; at < list.size();) {
    std::size_t used = 0;
    all.push_back(std::stoi(list.substr(at), &used));
    at += used + 1;
  }
  return all;
}

void run(int argc, char** argv) {
  const uniconn_example::Arguments arguments(argc, argv,
                                             {{"what", "all"},
                                              {"line", ""},
                                              {"gpus", "0"},
                                              {"repetitions", "5"},
                                              {"soak", "0"},
                                              {"limit", "60"},
                                              {"quick", "0"}});
  Options options;
  options.quick = arguments.count("quick", 0) != 0;
  options.repetitions = arguments.count("repetitions", 1);
  options.soak_seconds = arguments.count("soak", 0);
  options.line = arguments.text("line");
  options.limit_seconds = arguments.count("limit", 1);
  Bench bench(numbers(arguments.text("gpus")), options);
  const std::string& what = arguments.text("what");
  bool is_known = what == "all";
  for (const Group& group : kGroups) {
    if (what != "all" && what != group.name) continue;
    is_known = true;
    group.run(bench);
  }
  if (!is_known) throw std::runtime_error("--what " + what + " is no group of lines");
  if (!bench.has_run())
    throw std::runtime_error("--line '" + options.line + "' is no line of " + what);
}

}  // namespace
}  // namespace messaging_bench

int main(int argc, char** argv) {
  try {
    messaging_bench::run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
