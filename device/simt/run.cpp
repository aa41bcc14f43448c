#include "simt/run.hpp"

#include <deque>
#include <map>
#include <random>

namespace polypath::simt {
namespace {

class PlainOutside : public MemorySystem {
 public:
  PlainOutside(const RunOptions& options, int device, const std::uint64_t& now_ns)
      : options_(options), device_(device), now_ns_(now_ns) {}

  std::byte* at(std::uintptr_t address, std::size_t bytes, bool writes) override {
    if (address == 0) throw Fault{"a null address"};
    if (options_.access) options_.access(address, bytes, writes);
    return reinterpret_cast<std::byte*>(address);
  }
  bool is_local(std::uintptr_t address) override {
    for (const RunOptions::Range& range : options_.memory)
      if (address - reinterpret_cast<std::uintptr_t>(range.begin) < range.bytes)
        return range.device == device_;
    return true;
  }
  std::uint64_t now_ns() override { return now_ns_; }

  // Nothing takes time here.
  bool fetch(const detail::LoadPart*, std::size_t, bool, std::function<void()>) override {
    return false;
  }
  bool send(unsigned, std::uintptr_t, std::size_t, double&, std::function<void()>) override {
    return false;
  }
  void wait(double, std::function<void()>) override {}
  double fence_ns() override { return 0; }

 private:
  const RunOptions& options_;
  const int device_;
  const std::uint64_t& now_ns_;
};

}  // namespace

std::string run(const std::vector<std::vector<Launch>>& rows, const RunOptions& options) {
  constexpr std::uint64_t kFirstStepNs = 1'000'000;
  constexpr int kMaxSteps = 40;  // the last one takes years

  std::mt19937_64 random(options.seed);
  std::uint64_t now_ns = 1'000'000'000;
  std::map<int, PlainOutside> outsides;
  Machine machine({options.seed, false, options.max_parts, options.whole_lines});
  std::string error;

  std::vector<std::size_t> next(rows.size());  // launch of each row
  std::vector<std::size_t> startable;          // rows
  const auto offer = [&](std::size_t row) {
    if (next[row] < rows[row].size()) startable.push_back(row);
  };
  for (std::size_t row = 0; row < rows.size(); ++row) offer(row);
  const auto start_one = [&] {
    std::swap(startable[random() % startable.size()], startable.back());
    const std::size_t row = startable.back();
    startable.pop_back();
    Launch launch = rows[row][next[row]++];
    launch.blocks_of_device = options.blocks_of_device;
    PlainOutside& outside =
        outsides.try_emplace(launch.device, options, launch.device, now_ns).first->second;
    machine.start(launch, outside, [&, row](const std::string& what) {
      if (error.empty()) error = what;
      offer(row);
    });
  };

  std::uint64_t turns = 0;
  std::uint64_t step_ns = kFirstStepNs;
  int steps = 0;
  while (error.empty() && (machine.has_grids() || !startable.empty())) {
    if (!startable.empty() && (!machine.has_grids() || random() % 2 == 0)) start_one();
    // Launches begin a few or many turns apart, and after the one before in their row: a rank may
    // begin its next call while others have yet to look at what it sent them in this one.
    const std::uint64_t most = std::uint64_t{1} << random() % 15;
    turns += most;
    if (machine.run(most)) {
      if (turns > options.max_steps) error = "no end after so many turns:\n" + machine.describe();
      continue;
    }
    if (!startable.empty() || machine.look_at_watches()) continue;
    now_ns += step_ns;
    step_ns *= 2;
    if (++steps > kMaxSteps || !machine.let_time_pass()) error = "deadlock:\n" + machine.describe();
  }
  machine.kill(error);
  return error;
}

}  // namespace polypath::simt
