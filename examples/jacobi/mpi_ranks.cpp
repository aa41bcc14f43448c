#include <mpi.h>

#include "ranks.hpp"
#include "support/world.hpp"

namespace jacobi {
namespace {

class MpiRanks final : public Ranks {
 public:
  explicit MpiRanks(const mpi_bench::World& world) : world_(world) {}

  [[nodiscard]] int rank() const noexcept override { return world_.rank(); }
  [[nodiscard]] int size() const noexcept override { return world_.size(); }
  [[nodiscard]] int gpu() const noexcept override { return world_.local_rank(); }
  [[nodiscard]] std::string name() const override { return mpi_bench::library_version(); }

  void barrier() override { world_.barrier(); }
  double largest(double value) override { return world_.largest(value); }
  double mean(double value) override { return world_.mean(value); }
  std::uint64_t sum(std::uint64_t value) override { return world_.sum(value); }
  void largest(std::span<float> values) override {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_MAX,
                  MPI_COMM_WORLD);
  }

  void exchange_halo(Field& field) override {
    const int before = (rank() + size() - 1) % size();
    const int after = (rank() + 1) % size();
    const int count = static_cast<int>(field.columns());
    const auto row = [&](std::uint64_t number) {
      return field.next().data() + field.bytes(number);
    };
    MPI_Sendrecv(row(1), count, MPI_FLOAT, before, 0, row(field.rows() + 1), count, MPI_FLOAT,
                 after, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(field.rows()), count, MPI_FLOAT, after, 1, row(0), count, MPI_FLOAT, before, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }

 private:
  const mpi_bench::World& world_;
};

}  // namespace

std::unique_ptr<Ranks> mpi_ranks(const mpi_bench::World& world) {
  return std::make_unique<MpiRanks>(world);
}

}  // namespace jacobi
