// mpi_traffic PATTERN [--sizes A,B,...] [--window N] [--messages N] [--seed N] [--reallocate-every N]
//             [--kill RANK] [--report FOLDER]
//
// Sends messages from GPU to GPU by MPI, one rank a GPU, and compares every byte. Exit code 0: all arrived.
// --kill: the rank kills itself while the messages of the second phase are under way. --report: each rank
// writes FOLDER/rank.N.json: what it received, and what the simulated driver counted while messages
// were under way.
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.hpp"
#include "base/units.hpp"
#include "exchange.hpp"

namespace polypath::test {
namespace {

struct Arguments {
  Pattern pattern;
  std::uint64_t reallocate_every = 0;
  int killed_rank = -1;
  std::string report;
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

Arguments parse(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0)
    throw InvalidArgument("usage: mpi_traffic PATTERN [--NAME VALUE]...");
  Arguments arguments;
  Pattern& pattern = arguments.pattern;
  pattern.name = argv[1];
  pattern.sizes = {1, 64 * kMiB};
  for (int i = 2; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view value = argv[i + 1];
    if (name == "--sizes") {
      pattern.sizes = sizes(value);
    } else if (name == "--window") {
      pattern.window = static_cast<int>(number(value));
    } else if (name == "--messages") {
      pattern.messages = number(value);
    } else if (name == "--seed") {
      pattern.seed = number(value);
    } else if (name == "--reallocate-every") {
      arguments.reallocate_every = number(value);
    } else if (name == "--kill") {
      arguments.killed_rank = static_cast<int>(number(value));
    } else if (name == "--report") {
      arguments.report = value;
    } else {
      throw InvalidArgument(fmt::format("unknown argument {}", name));
    }
  }
  return arguments;
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

  void write(const std::string& folder) const {
    nlohmann::json received = nlohmann::json::array();
    for (const auto& [from, counts] : received_)
      for (const auto& [bytes, count] : counts)
        received.push_back({{"from", from}, {"bytes", bytes}, {"count", count}});
    nlohmann::json links = nlohmann::json::object();
    for (const auto& [link, moved] : links_)
      links[link] = {{"bytes", moved.bytes}, {"copies", moved.copies}};
    const nlohmann::json report{{"rank", rank_},
                                {"pid", ::getpid()},
                                {"gpu", gpu_.index()},
                                {"simulated", gpu_.is_simulated()},
                                {"received", received},
                                {"links", links},
                                {"pageable_copies", pageable_copies_},
                                {"bounced_copies", bounced_copies_}};
    const std::string file = fmt::format("{}/rank.{}.json", folder, rank_);
    std::ofstream out(file);
    out << report.dump(1) << '\n';
    if (!out.flush()) throw Error("cannot write " + file);
  }

 private:
  int rank_;
  const RankGpu& gpu_;
  std::map<int, std::map<std::uint64_t, std::uint64_t>> received_;  // by sender and size
  std::map<std::string, Moved> links_;
  std::uint64_t pageable_copies_ = 0;
  std::uint64_t bounced_copies_ = 0;
};

void run(const Arguments& arguments, int rank, int ranks) {
  const std::vector<Phase> phases = make_phases(arguments.pattern, ranks);
  const RankGpu gpu(rank);
  Exchange exchange(gpu, rank, phases);
  Report report(rank, gpu);
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (i > 0 && arguments.reallocate_every > 0 && i % arguments.reallocate_every == 0)
      exchange.reallocate();
    exchange.prepare(phases[i]);
    gpu.reset_counts();
    check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
    exchange.run(phases[i], [&] {
      if (i == 1 && rank == arguments.killed_rank) std::raise(SIGKILL);
    });
    report.add(phases[i]);
    exchange.verify(phases[i]);
  }
  if (!arguments.report.empty()) report.write(arguments.report);
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
    polypath::test::run(polypath::test::parse(argc, argv), rank, ranks);
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
