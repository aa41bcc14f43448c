// mpi_collectives CASE[,CASE]... [SEED]: collectives of MPI on device memory, every byte compared.
// CASE is one of those below, or the name of a function: all kinds of its calls. Prints a line of
// JSON a rank: {"rank", "pid", "calls": {function: number of calls with elements}}.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "collective_row.hpp"
#include "lone_cases.hpp"

namespace polypath::test {
namespace {

struct Run {
  const RankGpu& gpu;
  unsigned seed = 0;
  std::map<std::string, int> calls;

  void row(MPI_Comm comm, Row row) {
    row.seed = ++seed;
    if (row.count > 0) ++calls[name_of(row.collective)];
    run_row(gpu, comm, row);
  }
};

bool reduces(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::reduce_scatter;
}

/// One operation with each type, in place and not, with no, one, some and many elements.
void every_kind(Run& run, Collective collective) {
  const std::vector<MPI_Op> ops{MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD};
  const std::size_t count = reduces(collective) ? kReducedTypes : types().size();
  for (std::size_t type = 0; type < count; ++type) {
    const std::size_t sizes[] = {0, 1, 1003, 10'007};
    for (std::size_t i = 0; i < (type % 4 == 0 ? 4 : 3); ++i) {
      Row row{collective, types()[type]};
      row.op = ops[(type + i) % ops.size()];
      row.count = sizes[i];
      row.in_place = collective != Collective::broadcast && (i + type / 4) % 2 == 1;
      row.root = static_cast<int>(i) % size_of(MPI_COMM_WORLD);
      row.offset = i;
      run.row(MPI_COMM_WORLD, row);
    }
  }
}

Row random_row(std::mt19937& random, int size) {
  Row row{kCollectives[random() % 5], {}};
  row.type = types()[random() % (reduces(row.collective) ? kReducedTypes : types().size())];
  const std::vector<MPI_Op> ops{MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD};
  row.op = ops[random() % ops.size()];
  row.count = random() % (random() % 8 == 0 ? 15'000 : 300);
  row.in_place = random() % 2 == 0 && row.collective != Collective::broadcast;
  row.root = static_cast<int>(random() % static_cast<unsigned>(size));
  row.offset = random() % 9;
  return row;
}

/// Random calls, on the world and on halves of it, and each rank late by other times.
void random_rows(Run& run) {
  std::mt19937 random(run.seed);
  std::mt19937 own(run.seed + static_cast<unsigned>(rank_in(MPI_COMM_WORLD)));
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank_in(MPI_COMM_WORLD) / 2, -rank_in(MPI_COMM_WORLD), &half);
  for (int i = 0; i < 30; ++i) {
    if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 3000));
    const bool is_half = random() % 3 == 0;
    run.row(is_half ? half : MPI_COMM_WORLD,
            random_row(random, is_half ? 2 : size_of(MPI_COMM_WORLD)));
  }
  MPI_Comm_free(&half);
}

/// Communicators that come and go: duplicates, reversed ranks, and those that are left to
/// MPI_Finalize.
void communicators(Run& run) {
  std::mt19937 random(run.seed);
  const int rank = rank_in(MPI_COMM_WORLD);
  for (int i = 0; i < 2; ++i) {
    MPI_Comm reversed = MPI_COMM_NULL;
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, i % 2 == 0 ? 0 : rank % 2, -rank, &reversed);
    run.row(reversed, random_row(random, size_of(reversed)));
    MPI_Comm_dup(reversed, &copy);
    run.row(copy, random_row(random, size_of(reversed)));
    run.row(reversed, random_row(random, size_of(reversed)));
    MPI_Comm_free(&reversed);
    run.row(copy, random_row(random, size_of(copy)));
    if (i % 2 == 0) MPI_Comm_free(&copy);
  }
}

/// One large allreduce.
void large(Run& run) {
  Row row{Collective::allreduce, types()[0]};
  row.count = std::size_t{1} << 16;
  run.row(MPI_COMM_WORLD, row);
}

/// All ranks pass host memory.
void host_memory(Run& run) {
  std::mt19937 random(run.seed);
  for (int i = 0; i < 200; ++i) {
    Row row = random_row(random, size_of(MPI_COMM_WORLD));
    row.host_memory = true;
    row.type = types()[0];
    row.count = row.count % 32 + 32;
    run.row(MPI_COMM_WORLD, row);
  }
}

/// Calls of many kinds: ranks ask each other about the first of each.
void ever_host_memory(Run& run) {
  for (std::size_t i = 0; i < 600; ++i) {
    Row row{kCollectives[i % 5], types()[0]};
    row.count = std::size_t{1} << i / 5 % 10;
    row.host_memory = true;
    run.row(MPI_COMM_WORLD, row);
  }
  // Right, though always staged.
  Row row{Collective::allreduce, types()[0]};
  row.count = 1000;
  run.row(MPI_COMM_WORLD, row);
}

/// Above the sizes that ranks once asked each other about every time.
void large_host_memory(Run& run) {
  for (int i = 0; i < 40; ++i) {
    Row row{Collective::allreduce, types()[0]};
    row.count = 20'000;
    row.host_memory = true;
    run.row(MPI_COMM_WORLD, row);
  }
}

/// Device memory and host memory in turn, as programs have that sum residuals on the host.
void alternating(Run& run) {
  for (int i = 0; i < 40; ++i) {
    Row row{Collective::allreduce, types()[0]};
    row.count = 100;
    row.host_memory = i % 2 == 1;
    run.row(MPI_COMM_WORLD, row);
  }
}

/// A rank resets its GPU: polypath's communicator goes with that, MPI's stays.
void reset(Run& run) {
  std::mt19937 random(run.seed);
  const auto some_rows = [&](Run& on) {
    for (int i = 0; i < 5; ++i) {
      Row row = random_row(random, size_of(MPI_COMM_WORLD));
      row.count += 1;
      on.row(MPI_COMM_WORLD, row);
    }
  };
  some_rows(run);
  if (rank_in(MPI_COMM_WORLD) == 1) run.gpu.reset();
  const RankGpu again(rank_in(MPI_COMM_WORLD));
  Run after{again, run.seed, run.calls};
  some_rows(after);
  run.calls = after.calls;
}

/// Rank 1 frees a communicator and resets its GPU; rank 0 frees it after that, when rank 1 says
/// so.
void reset_while_freed(Run& run) {
  constexpr int kTag = 7;
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  Row row{Collective::allreduce, types()[0]};
  row.count = 1000;
  run.row(copy, row);
  int word = 0;
  if (rank_in(MPI_COMM_WORLD) == 1) {
    MPI_Comm_free(&copy);
    run.gpu.reset();
    MPI_Send(&word, 1, MPI_INT, 0, kTag, MPI_COMM_WORLD);
  } else {
    MPI_Recv(&word, 1, MPI_INT, 1, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm_free(&copy);
  }
}

/// Ranks that pass other memory than others, or another datatype.
void mixed(Run& run) {
  std::mt19937 random(run.seed);
  const int size = size_of(MPI_COMM_WORLD);
  for (int i = 0; i < 60; ++i) {
    Row row = random_row(random, size);
    row.count += 1;
    const int other = static_cast<int>(random() % static_cast<unsigned>(size));
    const bool is_other = rank_in(MPI_COMM_WORLD) == other;
    const bool derives = !reduces(row.collective) && random() % 2 == 0;
    row.derived_type = derives && is_other;
    row.host_memory = !derives && is_other;
    run.row(MPI_COMM_WORLD, row);
  }
}

void take_larger_magnitude(void* in, void* out, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) {
    const int a = static_cast<int*>(in)[i];
    int& b = static_cast<int*>(out)[i];
    b = std::abs(a) > std::abs(b) ? a : b;
  }
}

/// MPI does what polypath does not, on device memory as well: user-defined operators, predefined
/// ones that it lacks, datatypes that it does not reduce, pairs of a value and an index.
void others(Run& run) {
  const int rank = rank_in(MPI_COMM_WORLD);
  const int size = size_of(MPI_COMM_WORLD);
  const auto reduce = [&](auto contribution, MPI_Datatype type, MPI_Op op) {
    auto got = contribution;
    std::memset(static_cast<void*>(&got), 0xA5, sizeof got);
    const CUdeviceptr memory = run.gpu.allocate(2 * sizeof contribution);
    run.gpu.write(memory, std::as_bytes(std::span(&contribution, 1)));
    ++run.calls["MPI_Allreduce"];
    MPI_Allreduce(reinterpret_cast<void*>(memory),
                  reinterpret_cast<void*>(memory + sizeof contribution), 1, type, op,
                  MPI_COMM_WORLD);
    run.gpu.read(memory + sizeof contribution, std::as_writable_bytes(std::span(&got, 1)));
    run.gpu.free(memory);
    return got;
  };
  MPI_Op larger = MPI_OP_NULL;
  MPI_Op_create(&take_larger_magnitude, 1, &larger);
  require(reduce(rank % 2 == 0 ? rank : -rank, MPI_INT, larger) ==
              ((size - 1) % 2 == 0 ? size - 1 : 1 - size),
          "an operator of the program's");
  MPI_Op_free(&larger);
  require(reduce(1 << rank, MPI_INT, MPI_BOR) == (1 << size) - 1, "MPI_BOR");
  require(reduce(static_cast<short>(rank), MPI_SHORT, MPI_MAX) == size - 1, "MPI_SHORT");
  struct Located {
    int value;
    int index;
  };
  const Located least = reduce(Located{10 - rank, rank}, MPI_2INT, MPI_MINLOC);
  require(least.value == 10 - (size - 1) && least.index == size - 1, "MPI_MINLOC");
  // Alone, and with itself.
  Row row{Collective::allreduce, types()[0]};
  row.count = 1000;
  run.row(MPI_COMM_SELF, row);
}

std::function<void(Run&)> alone(void (*body)(Calls&)) {
  return [body](Run& run) {
    Calls calls{run.gpu, run.calls};
    body(calls);
  };
}

int main_of(int argc, char** argv) {
  std::map<std::string, std::function<void(Run&)>> cases{
      {"random", random_rows},
      {"communicators", communicators},
      {"large", large},
      {"host-memory", host_memory},
      {"large-host-memory", large_host_memory},
      {"alternating", alternating},
      {"reset", reset},
      {"reset-while-freed", reset_while_freed},
      {"mixed", mixed},
      {"others", others},
      {"intercommunicator", alone(intercommunicator)},
      {"freed-in-any-order", alone(freed_in_any_order)},
      {"unusual-types", alone(unusual_types)},
      {"derived-types", alone(derived_types)},
      {"gaps-in-use", alone(gaps_in_use)},
      {"paused", alone(paused)},
      {"ever-host-memory", ever_host_memory},
      {"huge", alone(huge)},
      {"killed", alone(killed)},
      {"stopped", alone(stopped)},
      {"stopped-fatally", alone(stopped_fatally)},
  };
  for (const Collective collective : kCollectives)
    cases.emplace(name_of(collective), [collective](Run& run) { every_kind(run, collective); });
  std::vector<std::function<void(Run&)>> selected;
  std::istringstream names(argc > 1 ? argv[1] : "");
  for (std::string name; std::getline(names, name, ',');) {
    if (!cases.contains(name)) return std::fprintf(stderr, "there is no such case\n"), 2;
    selected.push_back(cases[name]);
  }
  MPI_Init(&argc, &argv);
  const int rank = rank_in(MPI_COMM_WORLD);
  try {
    const RankGpu gpu(rank);
    Run run{gpu, argc > 2 ? static_cast<unsigned>(std::stoul(argv[2])) : 1, {}};
    for (const auto& each : selected) each(run);
    std::string calls;
    for (const auto& [name, count] : run.calls)
      calls += fmt::format("{}\"{}\": {}", calls.empty() ? "" : ", ", name, count);
    const std::string line =
        fmt::format("{{\"rank\": {}, \"pid\": {}, \"calls\": {{{}}}}}\n", rank, getpid(), calls);
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace polypath::test

int main(int argc, char** argv) { return polypath::test::main_of(argc, argv); }
