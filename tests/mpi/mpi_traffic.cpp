// mpi_traffic [--report FOLDER] PATTERN [--sizes A,B,...] [--window N] [--messages N] [--seed N]
//             [--reallocate-every N] [--kill RANK] [then PATTERN ...]
//
// Sends messages from GPU to GPU by MPI, one rank a GPU, and compares every byte. Exit code 0: all
// arrived. --kill: the rank kills itself while the messages of the second phase are under way.
// --report: each rank writes FOLDER/rank.N.json: of each pattern, what it received, and what the
// simulated driver counted while messages were under way.
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/error.hpp"
#include "base/units.hpp"
#include "exchange.hpp"

namespace polypath::test {
namespace {

struct Part {
  Pattern pattern;
  std::uint64_t reallocate_every = 0;
  int killed_rank = -1;
};

std::uint64_t number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    throw InvalidArgument(fmt::format("\"{}\" is not a number", text));
  return value;
}

std::vector<std::uint64_t> sizes(std::string_view text) {
  std::vector<std::uint64_t> result;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    result.push_back(parse_bytes(text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return result;
}

/// PATTERN [--NAME VALUE]...
Part parse(std::span<char* const> words) {
  if (words.size() % 2 == 0)
    throw InvalidArgument("usage: mpi_traffic PATTERN [--NAME VALUE]... [then PATTERN ...]");
  Part part;
  Pattern& pattern = part.pattern;
  pattern.name = words[0];
  pattern.sizes = {1, 64 * kMiB};
  for (std::size_t i = 1; i < words.size(); i += 2) {
    const std::string_view name = words[i];
    const std::string_view value = words[i + 1];
    if (name == "--sizes") {
      pattern.sizes = sizes(value);
    } else if (name == "--window") {
      pattern.window = static_cast<int>(number(value));
    } else if (name == "--messages") {
      pattern.messages = number(value);
    } else if (name == "--seed") {
      pattern.seed = number(value);
    } else if (name == "--reallocate-every") {
      part.reallocate_every = number(value);
    } else if (name == "--kill") {
      part.killed_rank = static_cast<int>(number(value));
    } else {
      throw InvalidArgument(fmt::format("unknown argument {}", name));
    }
  }
  return part;
}

std::vector<Part> parse_all(std::span<char* const> words) {
  std::vector<Part> parts;
  while (true) {
    const auto then = std::ranges::find(words, std::string_view("then"));
    const auto count = static_cast<std::size_t>(then - words.begin());
    parts.push_back(parse(words.first(count)));
    if (count == words.size()) return parts;
    words = words.subspan(count + 1);
  }
}

/// What this rank received, and over which links its process moved bytes.
class Report {
 public:
  explicit Report(int rank, const RankGpu& gpu) : rank_(rank), gpu_(gpu) {}

  void add(const Phase& phase) {
    for (const Message& message : phase.messages)
      if (message.to == rank_) ++received_[message.from][message.bytes];
    for (const auto& [link, moved] : gpu_.links()) {
      links_[link].bytes += moved.bytes;
      links_[link].copies += moved.copies;
    }
    pageable_copies_ += gpu_.pageable_copies();
    bounced_copies_ += gpu_.bounced_copies();
  }

  [[nodiscard]] nlohmann::json json() const {
    nlohmann::json received = nlohmann::json::array();
    for (const auto& [from, counts] : received_)
      for (const auto& [bytes, count] : counts)
        received.push_back({{"from", from}, {"bytes", bytes}, {"count", count}});
    nlohmann::json links = nlohmann::json::object();
    for (const auto& [link, moved] : links_)
      links[link] = {{"bytes", moved.bytes}, {"copies", moved.copies}};
    return {{"received", received},
            {"links", links},
            {"pageable_copies", pageable_copies_},
            {"bounced_copies", bounced_copies_}};
  }

 private:
  int rank_;
  const RankGpu& gpu_;
  std::map<int, std::map<std::uint64_t, std::uint64_t>> received_;  // by sender and size
  std::map<std::string, Moved> links_;
  std::uint64_t pageable_copies_ = 0;
  std::uint64_t bounced_copies_ = 0;
};

nlohmann::json run(const Part& part, const RankGpu& gpu, int rank, int ranks) {
  const std::vector<Phase> phases = make_phases(part.pattern, ranks);
  Exchange exchange(gpu, rank, phases);
  Report report(rank, gpu);
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (i > 0 && part.reallocate_every > 0 && i % part.reallocate_every == 0) exchange.reallocate();
    exchange.prepare(phases[i]);
    gpu.reset_counts();
    check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    exchange.run(phases[i], [&] {
      if (i == 1 && rank == part.killed_rank) std::raise(SIGKILL);
    });
    report.add(phases[i]);
    exchange.verify(phases[i]);
  }
  return report.json();
}

void run(std::span<char* const> arguments, int rank, int ranks) {
  std::string folder;
  if (arguments.size() > 2 && arguments[0] == std::string_view("--report")) {
    folder = arguments[1];
    arguments = arguments.subspan(2);
  }
  const std::vector<Part> parts = parse_all(arguments);
  const RankGpu gpu(rank);
  nlohmann::json reports = nlohmann::json::array();
  for (const Part& part : parts) reports.push_back(run(part, gpu, rank, ranks));
  if (folder.empty()) return;
  const nlohmann::json report{{"rank", rank},
                              {"pid", ::getpid()},
                              {"gpu", gpu.index()},
                              {"simulated", gpu.is_simulated()},
                              {"parts", reports}};
  const std::string file = fmt::format("{}/rank.{}.json", folder, rank);
  std::ofstream out(file);
  out << report.dump(1) << '\n';
  if (!out.flush()) throw Error("cannot write " + file);
}

}  // namespace
}  // namespace polypath::test

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  try {
    polypath::test::run(std::span(argv + 1, argv + argc), rank, ranks);
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
