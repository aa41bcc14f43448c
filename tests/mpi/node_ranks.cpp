// node_ranks NETWORK LEVEL [BYTES [CALLS]]: allreduce of float32 among the ranks of MPI, which are
// on the nodes that POLYPATH_COMM_NODE names, each result compared bit by bit with the sum in the
// order of ranks in their nodes and then of nodes. NETWORK: mpi or nccl. LEVEL: single (the ranks'
// own threads send) or multiple. Rank 0 prints a line of JSON.
//
//   mpirun -n 1 env POLYPATH_COMM_NODE=a node_ranks nccl single 64M : -n 1 env ...=b ...
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "polypath/comm.hpp"
#include "polypath/comm_mpi.h"
#include "rank_gpu.hpp"

namespace polypath::test {
namespace {

std::vector<float> contents(int rank, std::size_t count, unsigned seed) {
  std::mt19937 random(seed * 1024 + static_cast<unsigned>(rank));
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(static_cast<std::int32_t>(random())) / 65536.0F;
  return values;
}

/// Ranks by node, nodes by their first ranks.
std::vector<std::vector<int>> nodes_of_ranks(int size) {
  std::array<char, 64> own_node{};
  if (const char* const name = std::getenv("POLYPATH_COMM_NODE"))
    std::strncpy(own_node.data(), name, own_node.size() - 1);
  std::vector<std::array<char, 64>> names(static_cast<std::size_t>(size));
  MPI_Allgather(own_node.data(), 64, MPI_CHAR, names.data(), 64, MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::vector<int>> nodes;
  std::vector<std::array<char, 64>> seen;
  for (int rank = 0; rank < size; ++rank) {
    const auto& name = names[static_cast<std::size_t>(rank)];
    auto at = static_cast<std::size_t>(std::ranges::find(seen, name) - seen.begin());
    if (at == seen.size()) {
      seen.push_back(name);
      nodes.emplace_back();
    }
    nodes[at].push_back(rank);
  }
  return nodes;
}

void add(std::vector<float>& sum, const std::vector<float>& more) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

std::vector<float> expected(const std::vector<std::vector<int>>& nodes, std::size_t count,
                            unsigned seed) {
  std::vector<float> sum;
  for (const std::vector<int>& node : nodes) {
    std::vector<float> node_sum = contents(node.front(), count, seed);
    for (std::size_t i = 1; i < node.size(); ++i) add(node_sum, contents(node[i], count, seed));
    if (sum.empty())
      sum = node_sum;
    else
      add(sum, node_sum);
  }
  return sum;
}

void run(const std::string& network, std::size_t bytes, int calls) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto nodes = nodes_of_ranks(size);
  const RankGpu gpu(rank);
  polypath::context context;
  polypath_comm_options options{};
  if (network == "nccl") options.network = polypath_network_nccl();
  polypath_comm* handle = nullptr;
  detail::check(
      polypath_comm_create_mpi(context.get(), MPI_COMM_WORLD, gpu.index(), &options, &handle));
  const communicator comm(handle);
  detail::check(polypath_comm_prepare(comm.get()));
  if (comm.nodes() != static_cast<int>(nodes.size())) throw Error("other nodes than the names say");

  // Poison after what is asked for.
  const std::size_t count = bytes / sizeof(float);
  const std::vector<float> poison(count + 16, -12345.0F);
  const CUdeviceptr send = gpu.allocate(poison.size() * sizeof(float));
  const CUdeviceptr recv = gpu.allocate(poison.size() * sizeof(float));
  const auto issue = [&] {
    detail::check(polypath_all_reduce(comm.get(), reinterpret_cast<const void*>(send),
                                      reinterpret_cast<void*>(recv), count, POLYPATH_FLOAT32,
                                      POLYPATH_SUM, nullptr));
  };
  // Each call with other contents, and checked.
  for (unsigned seed = 0; seed < 3; ++seed) {
    const std::vector<float> contribution = contents(rank, count, seed);
    gpu.write(send, std::as_bytes(std::span(contribution)));
    gpu.write(recv, std::as_bytes(std::span(poison)));
    issue();
    comm.synchronize(nullptr);
    std::vector<float> expected_values = expected(nodes, count, seed);
    expected_values.insert(expected_values.end(), poison.end() - 16, poison.end());
    std::vector<float> actual(poison.size());
    gpu.read(recv, std::as_writable_bytes(std::span(actual)));
    if (std::memcmp(actual.data(), expected_values.data(), actual.size() * sizeof(float)) != 0)
      throw Error(fmt::format("rank {}: other bits than the sum has", rank));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = std::chrono::steady_clock::now();
  for (int call = 0; call < calls; ++call) issue();
  comm.synchronize(nullptr);
  const double us =
      std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
      std::max(calls, 1);
  char* report = nullptr;
  detail::check(polypath_comm_report(comm.get(), &report));
  if (rank == 0)
    std::printf(
        "{\"network\": \"%s\", \"ranks\": %d, \"nodes\": %d, \"bytes\": %zu, \"calls\": %d, "
        "\"us\": %.1f, \"bus_gbps\": %.2f, \"verified\": true, \"report\": %s}\n",
        network.c_str(), size, comm.nodes(), bytes, calls, us,
        static_cast<double>(bytes) * 2 * (size - 1) / size / us / 1e3, report);
  polypath_free_string(report);
  gpu.free(send);
  gpu.free(recv);
}

}  // namespace
}  // namespace polypath::test

int main(int argc, char** argv) {
  const std::string network = argc > 1 ? argv[1] : "";
  const std::string level = argc > 2 ? argv[2] : "";
  if ((network != "mpi" && network != "nccl") || (level != "single" && level != "multiple")) {
    std::fprintf(stderr, "node_ranks mpi|nccl single|multiple [BYTES [CALLS]]\n");
    return 2;
  }
  int provided = 0;
  MPI_Init_thread(&argc, &argv, level == "single" ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE,
                  &provided);
  try {
    if (level == "multiple" && provided < MPI_THREAD_MULTIPLE)
      throw polypath::Error("this MPI has no MPI_THREAD_MULTIPLE");
    polypath::test::run(network, argc > 3 ? polypath::parse_bytes(argv[3]) : 1 << 20,
                        argc > 4 ? std::stoi(argv[4]) : 10);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
