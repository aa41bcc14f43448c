// Finds the fastest UNICONN backend here, for each operation and size: all of them in turns, in one
// program. What is found is kept in the profile of rank 0's node, for AnyBackend
// (docs/tuning.md, `polypath tune backend`).
//
//   --backends LIST     polypath, gpuccl, gpushmem, and mpi in uniconn_tune_mpi; the first is
//                       preferred. Those that do not begin are left out
//   --ops LIST          post, allreduce, reduce, all_gather, all_to_all, broadcast
//   --sizes LIST        bytes, separated by commas: of a message; of a rank's larger buffer
//   --turns N           timed rows of each
//   --calls N           of a row, at most
//   --budget S          seconds
//   --again 1           also what is known, but for edited entries
//   --reports 1         rank 0 prints {"progress": [done, total, seconds left, what comes]}, and
//                       reads whether to go on: a line of "go on"
//   --threads N         N ranks in this process, as a simulated node needs; 0: this process is one
//                       rank of those that torchrun's variables, or mpirun, started
//
// Rank 0 prints a JSON object for each backend that is left out, each entry, and the end.
#include <array>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "arguments.hpp"
#include "measured_backend.hpp"
#include "ranks.hpp"
#include "rows.hpp"

namespace uniconn_bench {
namespace {

using uniconn_example::Arguments;
using uniconn_example::with_backend;

struct Task {
  int op = 0;
  std::size_t bytes = 0;
};

struct TuneOptions {
  std::vector<std::string> backends;
  std::vector<int> ops;
  std::vector<std::size_t> sizes;
  int turns = 9;
  int calls = 100;
  double budget_s = 60;
  bool again = false;
  bool reports = false;
};

/// What all ranks do, in step.
class Tune {
 public:
  Tune(const uc::Bootstrap& meeting, int device, const TuneOptions& options)
      : meeting_(meeting), options_(options), gpus_(meeting.gather(device)) {
    const std::size_t ranks = gpus_.size();
    std::size_t most = 16;
    for (const int op : options.ops)
      for (const std::size_t bytes : options.sizes)
        most = std::max(most, whole_bytes(op, bytes, ranks));
    for (const std::string& name : options.backends) begin(name, device, most);
    if (backends_.empty()) throw std::runtime_error("no backend begins on these ranks");
  }

  void run() {
    const std::vector<Task> tasks = tasks_to_do();
    std::size_t done = 0;
    bool stopped = false;
    for (const Task& task : tasks) {
      const std::string what =
          std::string(uc::detail::operation_names[static_cast<std::size_t>(task.op)]) + " of " +
          std::to_string(task.bytes) + " bytes, " + std::to_string(gpus_.size()) + " ranks";
      stopped = !go_on(done, tasks.size(), what);
      if (stopped) break;
      measure(task);
      ++done;
    }
    say({{"stopped", stopped}, {"seconds", seconds()}});
  }

 private:
  [[nodiscard]] bool is_first() const { return meeting_.rank() == 0; }
  void say(const nlohmann::json& what) const {
    if (!is_first()) return;
    std::printf("%s\n", what.dump().c_str());
    std::fflush(stdout);
  }
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  }
  /// On all ranks, or on none.
  void begin(const std::string& name, int device, std::size_t most) {
    std::unique_ptr<MeasuredBackend> backend;
    std::array<char, 240> failure{};
    try {
      with_backend(name, [&]<typename B>(std::type_identity<B>) {
        if constexpr (std::is_same_v<B, uc::AnyBackend>)
          throw std::runtime_error("any is none of those that are measured");
        else
          backend = std::make_unique<MeasuredBy<B>>(meeting_, device, most);
        return true;
      });
    } catch (const std::exception& error) {
      std::string(error.what()).copy(failure.data(), failure.size() - 1);
    }
    for (const auto& failure_of_rank : meeting_.gather(failure))
      if (failure_of_rank[0] != '\0')
        return say({{"excluded", name}, {"why", failure_of_rank.data()}});
    backends_.push_back(std::move(backend));
  }
  /// Rank 0's word.
  bool go_on(std::size_t done, std::size_t total, const std::string& what) {
    char goes_on = 1;
    if (is_first()) {
      const double left = std::max(0.0, options_.budget_s - seconds());
      if (left == 0) goes_on = 0;
      if (options_.reports) {
        say({{"progress", {done, total, left, what}}});
        std::string answer;
        if (!std::getline(std::cin, answer) || answer != "go on") goes_on = 0;
      }
    }
    return meeting_.gather(goes_on).front() != 0;
  }
  /// The tasks that rank 0's profile does not answer.
  [[nodiscard]] std::vector<Task> tasks_to_do() const {
    std::vector<Task> tasks;
    for (const int op : options_.ops)
      for (const std::size_t bytes : options_.sizes) {
        const Task task{op, whole_bytes(op, bytes, gpus_.size())};
        const auto is_same = [&task](const Task& other) {
          return other.op == task.op && other.bytes == task.bytes;
        };
        if (std::ranges::find_if(tasks, is_same) == tasks.end()) tasks.push_back(task);
      }
    constexpr std::size_t kMaxItems = 1024;
    if (tasks.size() > kMaxItems) throw std::runtime_error("too many operations and sizes");
    std::array<char, kMaxItems> is_known{};
    if (is_first()) {
      const auto rows = uc::detail::rows_here(uc::detail::engine().get(), gpus_);
      for (std::size_t i = 0; i < tasks.size(); ++i)
        for (const uc::detail::BackendRow& row : rows)
          if (row.op == tasks[i].op && row.bytes == tasks[i].bytes &&
              (row.edited != 0 || !options_.again))
            is_known[i] = 1;
    }
    const auto known = meeting_.gather(is_known).front();
    std::vector<Task> selected;
    for (std::size_t i = 0; i < tasks.size(); ++i)
      if (known[i] == 0) selected.push_back(tasks[i]);
    return selected;
  }

  void measure(const Task& task) {
    compare(task);
    const int calls = turns_of(task.bytes, options_.calls);
    std::vector<double> us;
    for (int turn = -1; turn < options_.turns; ++turn)  // one to warm up
      for (const auto& backend : backends_) {
        const Row row =
            timed(meeting_, backend->gpu(), calls, [&] { backend->run(task.op, task.bytes); });
        if (turn >= 0) us.push_back(row.us);
      }
    compare(task);
    keep(task, us);
  }
  /// Throws on all ranks when a byte is wrong on one.
  void compare(const Task& task) {
    for (const auto& backend : backends_) {
      const bool is_right = backend->is_right(task.op, task.bytes, ++seed_);
      const auto all = meeting_.gather(static_cast<char>(is_right ? 1 : 0));
      if (std::ranges::find(all, 0) != all.end())
        throw std::runtime_error(
            std::string(uc::detail::operation_names[static_cast<std::size_t>(task.op)]) + " of " +
            std::to_string(task.bytes) + " bytes by " +
            uc::detail::library_names[static_cast<std::size_t>(backend->number())] +
            ": bytes are wrong");
    }
  }
  void keep(const Task& task, const std::vector<double>& us) const {
    if (!is_first()) return;
    std::vector<int> numbers;
    for (const auto& backend : backends_) numbers.push_back(backend->number());
    const polypath_backend_samples measured{
        task.op,    gpus_.data(),   static_cast<int>(gpus_.size()),
        task.bytes, numbers.data(), static_cast<int>(numbers.size()),
        us.data(),  options_.turns};
    char* text = nullptr;
    polypath::detail::check(polypath_backend_save(uc::detail::engine().get(), &measured, &text));
    std::printf("%s\n", text);
    std::fflush(stdout);
    polypath_free_string(text);
  }

  uc::Bootstrap meeting_;
  const TuneOptions& options_;
  std::vector<int> gpus_;
  std::vector<std::unique_ptr<MeasuredBackend>> backends_;
  std::uint64_t seed_ = 0;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> all;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) all.push_back(part);
  if (all.empty()) throw std::runtime_error("a list is empty");
  return all;
}

TuneOptions tune_options_of(const Arguments& arguments) {
  TuneOptions options;
  options.backends = list_of(arguments.text("backends"));
  for (const std::string& name : list_of(arguments.text("ops"))) {
    const auto& names = uc::detail::operation_names;
    const auto it = std::ranges::find(names, name);
    if (it == names.end()) throw std::runtime_error("--ops: there is no " + name);
    options.ops.push_back(static_cast<int>(it - names.begin()));
  }
  for (const std::string& size : list_of(arguments.text("sizes")))
    options.sizes.push_back(std::stoull(size));
  options.turns = arguments.count("turns", 1);
  options.calls = arguments.count("calls", 1);
  options.budget_s = std::stod(arguments.text("budget"));
  options.again = arguments.count("again", 0) != 0;
  options.reports = arguments.count("reports", 0) != 0;
  return options;
}

/// One rank; false, and why on stderr: it failed.
bool tune_on(const uc::Bootstrap& meeting, int device, const TuneOptions& options) {
  try {
    Tune(meeting, device, options).run();
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", meeting.rank(), error.what());
    return false;
  }
}

}  // namespace
}  // namespace uniconn_bench

int main(int argc, char** argv) {
  using namespace uniconn_bench;
  try {
    const Arguments arguments(argc, argv,
                              {{"backends", "polypath"},
                               {"ops", "post,allreduce,reduce,all_gather,all_to_all,broadcast"},
                               {"sizes", "65536"},
                               {"turns", "9"},
                               {"calls", "100"},
                               {"budget", "60"},
                               {"again", "0"},
                               {"reports", "0"},
                               {"threads", "0"}});
    const TuneOptions options = tune_options_of(arguments);
    const int threads = arguments.count("threads", 0);
    if (threads == 0) {
      const uc::Bootstrap meeting = uc::AnyBackend::bootstrap(0, nullptr);
      return tune_on(meeting, uc::detail::node_place(meeting).rank, options) ? 0 : 1;
    }
    std::atomic<bool> is_well = true;
    {
      std::vector<std::jthread> ranks;
      for (const uc::Bootstrap& meeting : uc::Bootstrap::threads(threads))
        ranks.emplace_back([&, meeting] {
          if (!tune_on(meeting, meeting.rank(), options)) is_well = false;
        });
    }
    return is_well ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "uniconn_tune: %s\n", error.what());
    return 2;
  }
}
