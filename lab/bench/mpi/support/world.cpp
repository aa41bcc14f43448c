#include "world.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "usage_error.hpp"

namespace mpi_bench {

World::World(int& argc, char**& argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &local_rank_);
  MPI_Comm_free(&node);
}

World::~World() { MPI_Finalize(); }

void World::barrier() const { MPI_Barrier(MPI_COMM_WORLD); }

double World::largest(double value) const {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return value;
}

double World::mean(double value) const {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return value / size_;
}

std::uint64_t World::sum(std::uint64_t value) const {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return value;
}

std::string library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string whole(text, static_cast<std::size_t>(length));
  return whole.substr(0, whole.find_first_of(",\n"));
}

int with_world(int argc, char** argv, int (*body)(const World&, int argc, char** argv)) {
  const std::string name = std::filesystem::path(argv[0]).filename();
  const World world(argc, argv);
  try {
    return body(world, argc, argv);
  } catch (const UsageError& error) {
    if (world.root()) fmt::print(stderr, "{}: {}\n", name, error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: rank {}: {}\n", name, world.rank(), error.what());
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }
}

}  // namespace mpi_bench
