// What every group of lines measures with, and where its figures go.
//
// A group is a file NAME_lines.cpp with a function of groups.hpp; its kernels are NAME_bench.cuh
// (for the GPU by NAME_bench.cu, on a simulated node by host_kernels.cpp).
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpu.hpp"
#include "polypath/comm.h"

namespace messaging_bench {

/// A run found what must not be: an item lost, twice, torn, or out of order.
class WrongResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Options {
  /// Few items: that the lines run and are right, not how fast they are. So on simulated nodes.
  bool quick = false;
  int repetitions = 5;
  /// The one line to run; empty: all.
  std::string line;
  /// Each line is repeated at least for this time.
  double soak_seconds = 0;
  /// A run that lasts longer ends the program, with a reason.
  double limit_seconds = 60;
};

/// Known figures of a line, next to what was measured; 0: none.
struct Known {
  double paper = 0;      ///< what the paper reached, in the line's unit
  bool adds_up = false;  ///< the figure is the sum of queues that do not know each other
};

class Bench {
 public:
  /// `gpus`: one or two of this machine. Throws polypath::error.
  Bench(const std::vector<int>& gpus, const Options& options);
  ~Bench();

  [[nodiscard]] int gpus() const { return static_cast<int>(gpus_.size()); }
  [[nodiscard]] Gpu& gpu(int number) { return *gpus_[static_cast<std::size_t>(number)]; }
  /// Rank `number` is gpu(number); for what stands on a communicator.
  [[nodiscard]] polypath_comm* comm(int number) { return comms_[static_cast<std::size_t>(number)]; }
  [[nodiscard]] bool quick() const { return options_.quick; }
  template <typename T>
  [[nodiscard]] T sized(T full, T few) const {
    return options_.quick ? few : full;
  }

  /// Whether this line was requested. Lines must check it before they prepare anything.
  [[nodiscard]] bool wants(const std::string& line);
  /// Whether any line so far was requested.
  [[nodiscard]] bool has_run() const { return has_run_; }

  /// The median of several runs, after one that warms up; `run` gives microseconds. Throws if a
  /// kernel timed out. During a long run, stderr has `line` and what `state` says, which a thread
  /// of its own calls; of one that lasts past the limit, the communicators are aborted for that
  /// reason.
  double median_us(const std::string& line, const std::function<double()>& run,
                   const std::function<std::string()>& state = {});

  /// Prints a line: {"what", "line", "value", "unit", "paper", "adds_up", "limits"}.
  /// `limits`: names of limit(), measured in this run.
  void figure(const std::string& what, const std::string& line, double value,
              const std::string& unit, const Known& known = {},
              std::initializer_list<const char*> limits = {});
  /// So many items of the next figure() came once, whole and in order: its "items".
  void checked(std::uint64_t items) { checked_ = items; }
  /// {"what", "line", "skipped": why}
  void skipped(const std::string& what, const std::string& line, const std::string& why);

  /// What the hardware gives: measured when it is first asked for (limits.cpp has the names).
  double limit(const std::string& name);

 private:
  Options options_;
  polypath_context* engine_ = nullptr;
  std::vector<polypath_comm*> comms_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::map<std::string, double> limits_;
  std::uint64_t checked_ = 0;
  bool has_run_ = false;
};

/// Throws WrongResult, unless `is_right`.
void expect(bool is_right, const std::string& what);

}  // namespace messaging_bench
