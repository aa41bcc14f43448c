// Counts the placements of queens, by blocks of one GPU that balance the work by a queue
// (queens.cuh).
//
//   messaging_queens [--gpu N] [--size N] [--shared-rows N] [--blocks N]
//
// Prints a JSON object. Exit: 1 for another number than is known (sizes 4 to 18).
#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "arguments.hpp"
#include "gpu.hpp"
#include "images.hpp"
#include "polypath/comm.hpp"
#include "polypath/messaging/queue.h"
#include "queens_run.h"

namespace messaging_example {
namespace {

using polypath::detail::check;
using polypath::device::queue_view;

/// OEIS A000170, from size 4 on.
constexpr std::array<std::uint64_t, 15> kKnown = {
    2, 10, 4, 40, 92, 352, 724, 2680, 14200, 73712, 365596, 2279184, 14772512, 95815104, 666090624};

/// A queue of boards in the memory of one GPU.
class BoardQueue {
 public:
  explicit BoardQueue(polypath_comm* comm) {
    polypath_queue_options options{};
    options.item_bytes = sizeof(Board);
    options.capacity = 1U << 16;
    options.segment = 1U << 10;
    check(polypath_queue_create(comm, &options, 1, &queue_));
  }
  ~BoardQueue() { polypath_queue_destroy(queue_); }
  BoardQueue(const BoardQueue&) = delete;
  BoardQueue& operator=(const BoardQueue&) = delete;

  /// The same for those that push and for those that pop.
  [[nodiscard]] queue_view view() const {
    queue_view view{};
    check(polypath_queue_view(queue_, 0, POLYPATH_QUEUE_PRODUCER, &view, sizeof view));
    return view;
  }

 private:
  polypath_queue* queue_ = nullptr;
};

int run(int argc, char** argv) {
  const uniconn_example::Arguments arguments(
      argc, argv, {{"gpu", "0"}, {"size", "14"}, {"shared-rows", "6"}, {"blocks", "128"}});
  const int number = arguments.count("gpu", 0);
  const auto size = static_cast<std::uint32_t>(arguments.count("size", 4));
  if (size > 18) throw std::runtime_error("--size is 4 to 18");
  const auto shared_rows = static_cast<std::uint32_t>(arguments.count("shared-rows", 1));
  const auto blocks = static_cast<unsigned>(arguments.count("blocks", 1));
  polypath_context* context = nullptr;
  polypath_comm* comm = nullptr;
  check(polypath_context_create(nullptr, 0, &context));
  check(polypath_comm_create_all(context, &number, 1, nullptr, &comm));
  std::uint64_t solutions = 0;
  std::uint64_t boards = 0;
  double seconds = 0;
  {
    Gpu gpu(context, number);
    const BoardQueue queue(comm);
    auto* const counts = gpu.alloc<std::uint64_t>(48);
    const QueensRun run{queue.view(), size, shared_rows, counts, counts + 16, counts + 32};
    const auto begin = std::chrono::steady_clock::now();
    gpu.launch(queens_kernel_image(), "messaging_queens", blocks, kQueensThreads, run);
    gpu.synchronize();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    check(polypath_comm_check(comm));
    solutions = gpu.read(run.solutions, 1)[0];
    boards = gpu.read(run.boards, 1)[0];
  }
  polypath_comm_destroy(comm);
  polypath_context_destroy(context);
  std::printf(
      "{\"size\": %u, \"solutions\": %llu, \"boards_through_the_queue\": %llu, "
      "\"seconds\": %.6f}\n",
      size, static_cast<unsigned long long>(solutions), static_cast<unsigned long long>(boards),
      seconds);
  return solutions == kKnown.at(size - 4) ? 0 : 1;
}

}  // namespace
}  // namespace messaging_example

int main(int argc, char** argv) {
  return uniconn_example::exit_code(&messaging_example::run, argc, argv);
}
