// UNICONN's host calls against the same calls of the backend's own library, in alternating rows,
// with a control (the library against itself).
//
//   --test latency      a message to and fro, between two ranks; us one way
//   --test bandwidth    --window messages in a group, one way, and an answer; us a message
//   --test jacobi       an iteration of examples/uniconn's solver; grids of --rows times --sizes
//                       bytes a row
//   --test cg           an iteration of its conjugate gradients; --matrix
//   --backend NAME      as with_backend() has them (examples/uniconn/ranks.hpp)
//   --sizes LIST        bytes, separated by commas
//   --pairs N           timed rows of each
//   --calls N           of latency, bandwidth: of a row, at most
//   --iterations N      of a solver, a row
//   --exchange NAME     of jacobi: both neighbours at once, or in turns
//   --compute NAME      of a solver, as examples/uniconn has it
//   --mode NAME         of a solver: host, or partial or device, for kernels that send over
//   polypath,
//                       against the library's own calls from the host
//   --threads N         N ranks in this process, which a simulated node in virtual time needs; 0:
//   this
//                       process is one rank of those that torchrun's variables, or mpirun, started
//
// Rank 0 prints a JSON object a row. Every message is compared, to the last byte, before it is
// timed; a solver's results by both ways are compared to the last bit.
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <optional>

#include "arguments.hpp"
#include "jacobi2d.hpp"
#include "kernels_that_send.hpp"
#include "native_gpuccl.hpp"
#include "native_gpushmem.hpp"
#include "native_polypath.hpp"
#include "ranks.hpp"
#include "rows.hpp"
#include "solvers.hpp"
#if UNICONN_ANY_HAS_MPI
#include "native_mpi.hpp"
#endif

namespace uniconn_bench {
namespace {

using uniconn_example::contents;

/// Whether the library's own calls are here.
template <typename B>
constexpr bool kHasNative = requires { sizeof(Native<B>); };

/// In place of the library's own calls where there are none.
template <typename B>
struct NativeOrOurs {
  using type = ByUniconn<B>;
};
template <typename B>
  requires kHasNative<B>
struct NativeOrOurs<B> {
  using type = Native<B>;
};

struct Options {
  std::string test;
  std::vector<std::size_t> sizes;
  std::size_t window = 1;
  int pairs = 9;
  int calls = kMaxTurns;
  std::uint64_t rows = 16;
  int iterations = 10;
  bool in_turns = false;
  std::string compute;
  std::string matrix;
  std::string mode;
};

template <typename B>
class Bench {
  using Ours = ByUniconn<B>;
  using Theirs = typename NativeOrOurs<B>::type;

 public:
  Bench(Rank<B>& rank, int number, const Options& options)
      : rank_(rank),
        options_(options),
        own_(rank.comm.GlobalRank()),
        ranks_(rank.comm.GlobalSize()),
        ours_(rank.comm, rank.gpu) {
    numbers_ = rank.meeting.gather(number);
    if constexpr (kHasNative<B>) has_native_ = true;
    // Only an MPI that takes memory of GPUs has calls to compare with.
    if constexpr (requires { Native<B>::is_possible(); }) has_native_ = Native<B>::is_possible();
    if constexpr (kHasNative<B>)
      theirs_ = std::make_unique<Theirs>(rank.meeting, number, rank.gpu);
    else
      theirs_ = std::make_unique<Theirs>(rank.comm, rank.gpu);
  }

  void run() {
    if (options_.test == "jacobi") {
      for (const std::size_t bytes : options_.sizes) jacobi(bytes);
    } else if (options_.test == "cg") {
      cg();
    } else {
      messages();
    }
    rank_.gpu.synchronize();
    meet();
  }

 private:
  struct Buffers {
    void* sent;
    void* received;
  };

  void meet() const { static_cast<void>(rank_.meeting.gather(char{})); }
  [[nodiscard]] bool all_well(bool is_well) const {
    const auto all = rank_.meeting.gather(static_cast<char>(is_well ? 1 : 0));
    return std::ranges::find(all, 0) == all.end();
  }
  /// Routes and plans are there before anything is timed.
  void prepare(int to, std::size_t bytes) const {
    if (rank_.env.BackendName() == "polypath" && bytes > 0 && to != own_) {
      const auto name = [this](int rank) {
        return "gpu" + std::to_string(numbers_[static_cast<std::size_t>(rank)]);
      };
      const std::string from = name(own_);
      const std::string dest = name(to);
      const polypath_transfer_request request{from.c_str(), dest.c_str(), bytes};
      polypath::detail::check(polypath_prepare(uc::detail::engine().get(), &request, 1));
    }
    meet();
  }
  [[nodiscard]] std::string fields() const {
    return "\"test\": \"" + options_.test + "\", \"backend\": \"" + rank_.env.BackendName() +
           "\", \"ranks\": " + std::to_string(ranks_);
  }

  // ---- Messages -------------------------------------------------------------------------------

  void messages() {
    if (ranks_ != 2) throw std::runtime_error("two ranks are wanted");
    const std::size_t most = std::max<std::size_t>(*std::ranges::max_element(options_.sizes), 1);
    const Buffers own_buffers{ours_.allocate(most), ours_.allocate(most)};
    const Buffers library_buffers{theirs_->allocate(most), theirs_->allocate(most)};
    for (const std::size_t bytes : options_.sizes) {
      prepare(1 - own_, bytes);
      const bool is_right = arrives(ours_, own_buffers, bytes, 1) &&
                            (!has_native_ || arrives(*theirs_, library_buffers, bytes, 2));
      const int turns = turns_of(bytes * options_.window, options_.calls);
      const auto by = [&](auto& calls, const Buffers& buffers) {
        return timed(rank_.meeting, rank_.gpu, turns, [&] { exchange(calls, buffers, bytes); });
      };
      const Compared row = compared(
          options_.pairs, has_native_, [&] { return by(ours_, own_buffers); },
          [&] { return by(*theirs_, library_buffers); });
      if (own_ != 0) continue;
      const bool is_latency = options_.test == "latency";
      const double messages_each = is_latency ? 2 : static_cast<double>(options_.window);
      const double calls = is_latency ? 2 : static_cast<double>(options_.window + 1);
      char more[128];
      std::snprintf(more, sizeof more, ", \"bytes\": %zu, \"window\": %zu, \"gbps\": %.3f", bytes,
                    options_.window, static_cast<double>(bytes) / (row.us / messages_each) / 1e3);
      print(fields() + more, row, messages_each, calls, is_right);
      if (!is_right) throw std::runtime_error(std::to_string(bytes) + " bytes arrived wrong");
    }
  }

  template <typename Calls>
  void exchange(Calls& calls, const Buffers& buffers, std::size_t bytes) {
    const int other = 1 - own_;
    const bool is_first = own_ == 0;
    const auto post = [&](std::size_t count) {
      calls.post(buffers.sent, buffers.received, count, 0, other);
    };
    const auto acknowledge = [&](std::size_t count) {
      calls.acknowledge(buffers.received, count, 0, other);
    };
    if (options_.test == "latency") {
      is_first ? post(bytes) : acknowledge(bytes);
      is_first ? acknowledge(bytes) : post(bytes);
      return;
    }
    calls.start();
    for (std::size_t i = 0; i < options_.window; ++i) is_first ? post(bytes) : acknowledge(bytes);
    calls.end();
    // The window ends when the other side says so.
    is_first ? acknowledge(1) : post(1);
  }

  /// Whether what rank 0 sends arrives whole.
  template <typename Calls>
  bool arrives(Calls& calls, const Buffers& buffers, std::size_t bytes, std::uint64_t seed) {
    const auto expected = contents(bytes * 2 + seed, bytes);
    if (own_ == 0) {
      rank_.gpu.write(buffers.sent, expected.data(), bytes);
    } else {
      rank_.gpu.poison(buffers.received, std::max<std::size_t>(bytes, 1));
    }
    meet();
    bool is_right = true;
    if (own_ == 0) {
      calls.post(buffers.sent, buffers.received, bytes, 0, 1);
      rank_.gpu.synchronize();
    } else {
      calls.acknowledge(buffers.received, bytes, 0, 0);
      std::vector<std::uint64_t> received(expected.size(), 0);
      rank_.gpu.synchronize();
      rank_.gpu.read(received.data(), buffers.received, bytes);
      is_right = received == expected;
    }
    return all_well(is_right);
  }

  // ---- Solvers --------------------------------------------------------------------------------

  void jacobi(std::size_t bytes) {
    const Grid grid{options_.rows, bytes / sizeof(float)};
    if (grid.columns < 3 || grid.rows < static_cast<std::uint64_t>(ranks_))
      throw std::runtime_error("a row each, of 12 bytes, is wanted");
    for (const int to : {(own_ + 1) % ranks_, (own_ + ranks_ - 1) % ranks_}) prepare(to, bytes);
    const auto compute = sweeps(options_.compute, rank_.gpu);
    JacobiBy<Theirs> native(rank_.gpu, *compute, *theirs_, grid, options_.in_turns, own_, ranks_);
    in_mode<B>(options_.mode, [&](auto mode) {
      if constexpr (mode() == uc::LaunchMode::PureHost) {
        JacobiBy<Ours> ours(rank_.gpu, *compute, ours_, grid, options_.in_turns, own_, ranks_);
        compare(ours, native, grid, compute->name());
      } else {
        const int most = options_.iterations * (1 + rows_of_each(options_.pairs));
        Jacobi2d<B, mode()> ours(rank_.gpu, *compute, rank_.comm, grid, most, options_.in_turns);
        compare(ours, native, grid, "kernel");
      }
    });
  }

  template <typename Solver>
  void compare(Solver& ours, JacobiBy<Theirs>& native, const Grid& grid, const char* compute) {
    const auto by = [&](auto& solver) {
      return timed(rank_.meeting, rank_.gpu, options_.iterations, [&] { solver.iterate(); });
    };
    // Both ways have made as many iterations whenever they are compared.
    const bool is_right = is_alike(ours, native, grid, options_.iterations);
    const Compared row =
        compared(options_.pairs, has_native_, [&] { return by(ours); }, [&] { return by(native); });
    if (own_ != 0) return;
    char more[240];
    std::snprintf(
        more, sizeof more,
        ", \"bytes\": %" PRIu64 ", \"rows\": %" PRIu64
        ", \"iterations\": %d, \"exchange\": \"%s\", \"mode\": \"%s\", \"compute\": \"%s\"",
        grid.columns * sizeof(float), grid.rows, options_.iterations,
        options_.in_turns ? "turns" : "both", options_.mode.c_str(), compute);
    print(fields() + more, row, 1, 1, is_right);
    if (!is_right) throw std::runtime_error("both ways do not give the same grid");
  }

  template <typename Solver>
  bool is_alike(Solver& ours, JacobiBy<Theirs>& native, const Grid& grid, int iterations) {
    for (int i = 0; i < iterations; ++i) {
      ours.iterate();
      if (has_native_) native.iterate();
    }
    rank_.gpu.synchronize();
    bool is_same = !has_native_ || ours.digest() == native.digest();
    if constexpr (requires { ours.halo_digest(); }) {
      is_same = is_same && (!has_native_ || ours.halo_digest() == native.halo_digest());
      if (options_.compute == "timed") {
        // It is copied alone: the halos are the neighbours' first values.
        const auto whole = host_sweeps(rank_.gpu);
        JacobiBy<Ours> begun(rank_.gpu, *whole, ours_, grid, options_.in_turns, own_, ranks_);
        return all_well(is_same && begun.halo_digest() == ours.halo_digest());
      }
    }
    // That of one host, where that does not take long.
    if (grid.rows * grid.columns > std::uint64_t{1} << 20) return all_well(is_same);
    std::uint64_t sum = 0;
    for (const std::uint64_t each : rank_.meeting.gather(ours.digest())) sum += each;
    return all_well(is_same && sum == jacobi2d_alone(grid, iterations).digest);
  }

  void cg() {
    const Brick brick = uniconn_example::brick(options_.matrix);
    const RowParts parts(brick.rows(), ranks_);
    const Rows rows = rows_of(brick, parts.first(own_), parts.count(own_));
    const auto steps = cg_steps(options_.compute, rank_.gpu, brick, rows);
    in_mode<B>(options_.mode, [&](auto mode) {
      if constexpr (mode() == uc::LaunchMode::PureHost) {
        CgBy<Ours> ours(rank_.gpu, *steps, ours_, brick, own_, ranks_);
        compare(ours, brick, *steps, steps->name());
      } else {
        ConjugateGradients<B, mode()> ours(rank_.gpu, *steps, rank_.comm, brick, rows,
                                           options_.iterations);
        compare(ours, brick, *steps, "kernel");
      }
    });
  }

  template <typename Solver>
  void compare(Solver& ours, const Brick& brick, CgSteps& steps, const char* compute) {
    double residual[2] = {0, 0};
    for (int i = 0; i < options_.iterations; ++i) ours.iterate();
    residual[0] = ours.residual();
    // The steps are of one solver at a time.
    std::optional<CgBy<Theirs>> native;
    residual[1] = residual[0];
    if (has_native_) {
      native.emplace(rank_.gpu, steps, *theirs_, brick, own_, ranks_);
      for (int i = 0; i < options_.iterations; ++i) native->iterate();
      residual[1] = native->residual();
    }
    const bool is_right = all_well(std::memcmp(&residual[0], &residual[1], sizeof(double)) == 0);
    const auto by = [&](auto& solver) {
      solver.begin();
      rank_.gpu.synchronize();
      return timed(rank_.meeting, rank_.gpu, options_.iterations, [&] { solver.iterate(); });
    };
    const Compared row = compared(
        options_.pairs, has_native_, [&] { return by(ours); }, [&] { return by(*native); });
    if (own_ != 0) return;
    char more[240];
    std::snprintf(
        more, sizeof more,
        ", \"matrix\": \"%s\", \"rows\": %" PRIu64
        ", \"iterations\": %d, \"mode\": \"%s\", \"compute\": \"%s\", \"residual\": %.17g",
        brick.name.c_str(), brick.rows(), options_.iterations, options_.mode.c_str(), compute,
        residual[0]);
    print(fields() + more, row, 1, 1, is_right);
    if (!is_right) throw std::runtime_error("both ways do not give the same residual");
  }

  Rank<B>& rank_;
  const Options& options_;
  int own_;
  int ranks_;
  std::vector<int> numbers_;  ///< of the ranks' GPUs
  bool has_native_ = false;
  Ours ours_;
  std::unique_ptr<Theirs> theirs_;
};

Options options_of(const Arguments& arguments) {
  Options options;
  options.test = arguments.text("test");
  if (options.test != "latency" && options.test != "bandwidth" && options.test != "jacobi" &&
      options.test != "cg")
    throw std::runtime_error("--test is latency, bandwidth, jacobi or cg");
  const std::string& sizes = arguments.text("sizes");
  for (std::size_t at = 0; at < sizes.size();) {
    std::size_t used = 0;
    options.sizes.push_back(std::stoull(sizes.substr(at), &used));
    at += used + 1;
  }
  if (options.sizes.empty()) throw std::runtime_error("--sizes is empty");
  options.window = static_cast<std::size_t>(arguments.count("window", 1));
  if (options.test == "latency") options.window = 1;
  options.pairs = arguments.count("pairs", 1);
  options.calls = arguments.count("calls", 1);
  options.rows = static_cast<std::uint64_t>(arguments.count("rows", 1));
  options.iterations = arguments.count("iterations", 1);
  options.in_turns = arguments.text("exchange") == "turns";
  options.compute = arguments.text("compute");
  options.matrix = arguments.text("matrix");
  options.mode = arguments.text("mode");
  return options;
}

}  // namespace
}  // namespace uniconn_bench

int main(int argc, char** argv) {
  using namespace uniconn_bench;
  try {
    const Arguments arguments(argc, argv,
                              {{"test", "latency"},
                               {"backend", "polypath"},
                               {"sizes", "8,65536,1048576"},
                               {"window", "1"},
                               {"pairs", "9"},
                               {"calls", "100"},
                               {"rows", "16"},
                               {"iterations", "10"},
                               {"exchange", "both"},
                               {"compute", "auto"},
                               {"mode", "host"},
                               {"matrix", "serena-like"},
                               {"threads", "0"}});
    const Options options = options_of(arguments);
    const int threads = arguments.count("threads", 0);
    return with_backend(arguments.text("backend"),
                        [&]<typename B>(std::type_identity<B>) {
                          return on_ranks<B>(threads, [&](Rank<B>& rank) {
                            const int number =
                                threads > 0 ? rank.env.WorldRank() : rank.env.NodeRank();
                            Bench<B>(rank, number, options).run();
                          });
                        })
               ? 0
               : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "uniconn_bench: %s\n", error.what());
    return 2;
  }
}
