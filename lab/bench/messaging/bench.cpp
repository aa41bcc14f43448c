#include "bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "limits.hpp"
#include "polypath/comm.hpp"
#include "run_watch.hpp"

namespace messaging_bench {
namespace {

using polypath::detail::check;

void print(const nlohmann::json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

void say(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

RunWatch::Limits limits_of(const Options& options) {
  RunWatch::Limits limits;
  limits.end = std::chrono::milliseconds(static_cast<std::int64_t>(options.limit_seconds * 1000));
  return limits;
}

}  // namespace

Bench::Bench(const std::vector<int>& gpus, const Options& options) : options_(options) {
  check(polypath_context_create(nullptr, 0, &engine_));
  comms_.resize(gpus.size());
  check(polypath_comm_create_all(engine_, gpus.data(), static_cast<int>(gpus.size()), nullptr,
                                 comms_.data()));
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    polypath::device::wait_context wait_ctx;
    check(polypath_comm_wait_context(comms_[i], &wait_ctx, sizeof wait_ctx));
    gpus_.push_back(std::make_unique<Gpu>(engine_, gpus[i], wait_ctx));
  }
}

Bench::~Bench() {
  gpus_.clear();
  for (polypath_comm* const comm : comms_) polypath_comm_destroy(comm);
  polypath_context_destroy(engine_);
}

bool Bench::wants(const std::string& line) {
  const bool is_wanted = options_.line.empty() || line == options_.line;
  has_run_ |= is_wanted;
  return is_wanted;
}

double Bench::median_us(const std::string& line, const std::function<double()>& run,
                        const std::function<std::string()>& state) {
  std::vector<double> all;
  const auto begun = std::chrono::steady_clock::now();
  const auto lasts = [&] {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begun;
    return spent.count() < options_.soak_seconds;
  };
  RunWatch watch(line, limits_of(options_),
                 {state, say,
                  [this](const std::string& why) {
                    for (polypath_comm* const comm : comms_) polypath_comm_abort(comm, why.c_str());
                  },
                  [](const std::string& why) {
                    say(why + "; an abort did not end it");
                    std::_Exit(1);
                  }});
  for (int i = 0; i <= options_.repetitions || lasts(); ++i) {
    watch.next_run();
    const double us = run();
    for (polypath_comm* const comm : comms_) check(polypath_comm_check(comm));
    if (i > 0) all.push_back(us);
  }
  std::ranges::sort(all);
  return all[all.size() / 2];
}

void Bench::figure(const std::string& what, const std::string& line, double value,
                   const std::string& unit, const Known& known,
                   std::initializer_list<const char*> limits) {
  nlohmann::json all = {{"what", what}, {"line", line}, {"value", value}, {"unit", unit}};
  if (known.paper > 0) all["paper"] = known.paper;
  if (known.adds_up) all["adds_up"] = true;
  if (checked_ > 0) all["items"] = std::exchange(checked_, 0);
  for (const char* const name : limits) all["limits"][name] = limit(name);
  print(all);
}

void Bench::skipped(const std::string& what, const std::string& line, const std::string& why) {
  print({{"what", what}, {"line", line}, {"skipped", why}});
}

double Bench::limit(const std::string& name) {
  const auto known = limits_.find(name);
  if (known != limits_.end()) return known->second;
  const double soak = std::exchange(options_.soak_seconds, 0);
  const double value = measure_limit(*this, name);
  limits_[name] = value;
  options_.soak_seconds = soak;
  return value;
}

void expect(bool is_right, const std::string& what) {
  if (!is_right) throw WrongResult(what);
}

}  // namespace messaging_bench
