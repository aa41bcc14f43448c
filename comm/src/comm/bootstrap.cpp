#include "comm/bootstrap.hpp"

#include <unistd.h>

#include "core/version.hpp"

namespace polypath {
namespace {

std::string_view version_of(const Hello& hello) {
  return {hello.version.data(), ::strnlen(hello.version.data(), hello.version.size())};
}

std::string differing(const Hello& hello, std::size_t rank, const Hello& first) {
  if (hello.magic != Hello::kMagic)
    return fmt::format("rank {} sent no greeting of polypath: the exchange gave other bytes", rank);
  if (hello.protocol != first.protocol || version_of(hello) != version_of(first))
    return fmt::format("rank 0 runs polypath {}, rank {} runs {}: start all with the same one",
                       version_of(first), rank, version_of(hello));
  if (hello.size != first.size)
    return fmt::format("rank 0 says {} ranks, rank {} says {}", first.size, rank, hello.size);
  if (hello.rank != static_cast<int>(rank))
    return fmt::format(
        "what came from rank {} stands in the place of rank {}: the exchange must "
        "give records in the order of ranks, and no two ranks one number",
        hello.rank, rank);
  if (hello.machine != first.machine)
    return fmt::format("ranks 0 and {} are on different machines: a communicator is of one machine",
                       rank);
  if (hello.pid_namespace != first.pid_namespace)
    return fmt::format(
        "ranks 0 and {} are in different PID namespaces: run them in one container, "
        "or with the machine's (docker: --pid=host --ipc=host)",
        rank);
  if (hello.user != first.user)
    return fmt::format(
        "rank 0 runs as user {}, rank {} as user {}: processes of one user only can "
        "share GPU memory",
        first.user, rank, hello.user);
  return differing_order(hello.sum_order, rank, first.sum_order);
}

std::string_view name_of(polypath_sum_order order) {
  return order == POLYPATH_SUM_ORDER_TREE ? "tree" : "rank";
}

}  // namespace

std::string differing_order(polypath_sum_order order, std::size_t rank, polypath_sum_order first) {
  if (order == first) return {};
  return fmt::format(
      "the order of sums (sum_order) of rank 0 is '{}', that of rank {} is '{}': give all ranks "
      "the same",
      name_of(first), rank, name_of(order));
}

Hello make_hello() {
  Hello hello;
  const std::string_view text = version();
  std::memcpy(hello.version.data(), text.data(), std::min(text.size(), hello.version.size()));
  hello.user = ::geteuid();
  hello.machine = this_machine();
  hello.pid_namespace = pid_namespace();
  hello.process = this_process();
  return hello;
}

std::string verdict(std::span<const Hello> hellos) {
  const Hello& first = hellos.front();
  for (std::size_t rank = 0; rank < hellos.size(); ++rank)
    if (std::string why = differing(hellos[rank], rank, first); !why.empty()) return why;
  for (std::size_t rank = 0; rank < hellos.size(); ++rank)
    if (hellos[rank].problem) return fmt::format("rank {}: {}", rank, hellos[rank].problem.line());
  for (std::size_t rank = 0; rank < hellos.size(); ++rank)
    for (std::size_t other = 0; other < rank; ++other)
      if (hellos[rank].gpu_uuid == hellos[other].gpu_uuid)
        return fmt::format(
            "ranks {} and {} have the same GPU (gpu{} of rank {}): give each rank its "
            "own",
            other, rank, hellos[rank].gpu, rank);
  return {};
}

BootstrapResult join(Hello hello, const HostAllGather& exchange,
                     const std::function<int(const std::array<unsigned char, 16>&)>& number_of,
                     const std::function<bool(const Members&)>& reach) {
  const auto size = static_cast<std::size_t>(hello.size);
  const std::string what = fmt::format("creating a communicator of {} ranks", size);
  BootstrapResult joined;
  if (hello.rank == 0 && !hello.problem) {
    hello.problem.catch_from([&] {
      joined.board = ControlSegment::make(hello.size);
      hello.board = joined.board->id();
      hello.board_file = joined.board->file();
    });
  }
  std::vector<Hello> hellos(size);
  exchange(std::as_bytes(std::span(&hello, 1)), std::as_writable_bytes(std::span(hellos)));
  const std::string refused = verdict(hellos);

  Reached opened;
  if (refused.empty()) {
    opened.problem.catch_from([&] {
      const Hello& first = hellos.front();
      if (joined.board == nullptr)
        joined.board =
            ControlSegment::open(first.process, first.board_file, first.board, first.size);
      joined.members.rank = hello.rank;
      for (std::size_t rank = 0; rank < size; ++rank) {
        const int gpu = number_of(hellos[rank].gpu_uuid);
        if (gpu < 0)
          throw Error(
              fmt::format("the GPU of rank {} is not visible here: let every process see all "
                          "GPUs (CUDA_VISIBLE_DEVICES) and choose its own by number",
                          rank));
        joined.members.all.push_back(
            {hellos[rank].process, gpu, hellos[rank].process == hello.process});
      }
      opened.reaches_all = reach(joined.members) ? 1 : 0;
    });
  }
  std::vector<Reached> all(size);
  exchange(std::as_bytes(std::span(&opened, 1)), std::as_writable_bytes(std::span(all)));
  if (!refused.empty()) throw CommunicatorError(fmt::format("{}: {}", what, refused));
  throw_first_error(all, what);
  joined.reaches_all =
      std::ranges::all_of(all, [](const Reached& rank) { return rank.reaches_all != 0; });
  joined.limit = std::chrono::milliseconds(hellos.front().timeout_ms);
  return joined;
}

}  // namespace polypath
