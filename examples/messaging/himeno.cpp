// Himeno's pressure on several GPUs, all iterations in one kernel a GPU (himeno.cuh).
//
//   messaging_himeno [--ranks N] [--planes N] [--rows N] [--width N] [--iterations N] [--blocks N]
//                    [--check 1]
//
// GPU r is rank r. Prints a JSON object; with --check the host computes it all alone, and another
// bit anywhere is an error.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "arguments.hpp"
#include "gpu.hpp"
#include "himeno_host.hpp"
#include "images.hpp"
#include "polypath/comm.hpp"
#include "polypath/messaging/channel.h"

namespace messaging_example {
namespace {

using polypath::detail::check;

/// What all ranks have together.
class Ranks {
 public:
  Ranks(int ranks, std::size_t grid_bytes, std::uint32_t blocks) {
    const auto count = static_cast<std::size_t>(ranks);
    check(polypath_context_create(nullptr, 0, &context_));
    comms_.resize(count);
    memories_.resize(count);
    channels_.resize(count);
    check(polypath_comm_create_all(context_, nullptr, ranks, nullptr, comms_.data()));
    check(polypath_comm_alloc_all(comms_.data(), ranks, 2 * grid_bytes, memories_.data()));
    polypath_channel_options options{};
    options.contexts = blocks;
    check(polypath_channel_create_all(comms_.data(), ranks, &options, memories_.data(), 1,
                                      channels_.data()));
    for (int rank = 0; rank < ranks; ++rank) gpus_.push_back(std::make_unique<Gpu>(context_, rank));
  }
  ~Ranks() {
    gpus_.clear();
    const auto ranks = static_cast<int>(comms_.size());
    polypath_channel_destroy_all(channels_.data(), ranks);
    for (polypath_comm* const comm : comms_) polypath_comm_destroy(comm);
    polypath_context_destroy(context_);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  [[nodiscard]] Gpu& gpu(std::size_t rank) { return *gpus_[rank]; }
  [[nodiscard]] float* grid(std::size_t rank) const {
    return static_cast<float*>(polypath_symmetric_address(memories_[rank], static_cast<int>(rank)));
  }
  [[nodiscard]] polypath::device::channel_view view(std::size_t rank) const {
    polypath::device::channel_view view{};
    check(polypath_channel_view(channels_[rank], &view, sizeof view));
    return view;
  }
  void check_all() {
    for (polypath_comm* const comm : comms_) check(polypath_comm_check(comm));
  }

 private:
  polypath_context* context_ = nullptr;
  std::vector<polypath_comm*> comms_;
  std::vector<polypath_symmetric*> memories_;
  std::vector<polypath_channel*> channels_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
};

int run(int argc, char** argv) {
  const uniconn_example::Arguments arguments(argc, argv,
                                             {{"ranks", "2"},
                                              {"planes", "130"},
                                              {"rows", "128"},
                                              {"width", "256"},
                                              {"iterations", "50"},
                                              {"blocks", "64"},
                                              {"check", "0"}});
  const auto number = [&](const char* name, int least) {
    return static_cast<std::uint32_t>(arguments.count(name, least));
  };
  const std::uint32_t count = number("ranks", 1);
  const HimenoSize size{number("planes", 3), number("rows", 3), number("width", 3)};
  const std::uint32_t iterations = number("iterations", 1);
  const std::uint32_t blocks = number("blocks", 1);
  if (size.planes - 2 < count) throw std::runtime_error("a rank has no planes");
  const std::size_t cells = size.cells();
  Ranks ranks(static_cast<int>(count), cells * sizeof(float), blocks);
  const std::vector<float> first = himeno_begin(size);
  std::vector<HimenoRun> runs;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    Gpu& gpu = ranks.gpu(rank);
    const HimenoPart part = part_of(size, rank, count);
    HimenoRun run{ranks.view(rank),
                  {ranks.grid(rank), ranks.grid(rank) + cells},
                  part.planes,
                  size.rows,
                  size.width,
                  iterations,
                  gpu.alloc<float>(std::size_t{part.planes} * size.rows),
                  gpu.alloc<std::uint64_t>(2),
                  gpu.alloc<std::uint32_t>(1)};
    for (float* const grid : run.pressure)
      gpu.write(grid, first.data() + (part.first - 1) * size.plane(),
                (part.planes + 2) * size.plane());
    runs.push_back(run);
  }
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint32_t rank = 0; rank < count; ++rank)
    ranks.gpu(rank).launch(himeno_kernel_image(), "messaging_himeno", blocks, kHimenoThreads,
                           runs[rank]);
  for (std::uint32_t rank = 0; rank < count; ++rank) ranks.gpu(rank).synchronize();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ranks.check_all();

  HimenoResult result{first, 0};
  std::vector<float> sums;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    Gpu& gpu = ranks.gpu(rank);
    if (gpu.read(runs[rank].failed, 1)[0] != 0) throw std::runtime_error("a block failed");
    const HimenoPart part = part_of(size, rank, count);
    const std::vector<float> planes =
        gpu.read(runs[rank].pressure[iterations % 2] + size.plane(), part.planes * size.plane());
    std::ranges::copy(
        planes, result.pressure.begin() + static_cast<std::ptrdiff_t>(part.first * size.plane()));
    const std::vector<float> rows =
        gpu.read(runs[rank].row_sums, std::size_t{part.planes} * size.rows);
    sums.insert(sums.end(), rows.begin(), rows.end());
  }
  result.residual = residual_of(size, sums);
  const double points = static_cast<double>(size.planes - 2) * (size.rows - 2) * (size.width - 2);
  std::printf(
      "{\"ranks\": %u, \"iterations\": %u, \"residual\": %.17g, \"seconds\": %.6f, "
      "\"G_points_per_s\": %.3f}\n",
      count, iterations, result.residual, seconds, points * iterations / seconds * 1e-9);
  if (arguments.count("check", 0) == 0) return 0;
  const HimenoResult expected = himeno_alone(size, iterations);
  const bool is_same =
      std::memcmp(expected.pressure.data(), result.pressure.data(), cells * sizeof(float)) == 0 &&
      std::bit_cast<std::uint64_t>(expected.residual) ==
          std::bit_cast<std::uint64_t>(result.residual);
  std::printf("{\"same_bits_as_the_host\": %s}\n", is_same ? "true" : "false");
  return is_same ? 0 : 1;
}

}  // namespace
}  // namespace messaging_example

int main(int argc, char** argv) {
  return uniconn_example::exit_code(&messaging_example::run, argc, argv);
}
