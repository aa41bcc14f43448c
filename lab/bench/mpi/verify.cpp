#include "verify.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "support/contents.hpp"

namespace mpi_bench {
namespace {

/// The `number`th message along a flow from `sender` to `receiver`.
Message message(const Layout& layout, std::size_t flow, int number, int sender, int receiver,
                int tag) {
  const auto word = [](int value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t seed =
      seed_of({word(sender), word(receiver), word(tag), word(number), word(layout.window()),
               static_cast<std::uint64_t>(layout.bytes())});
  return {layout.offset(flow, number), layout.bytes(), seed};
}

/// Calls `visit(flow, message, number)` for every message along these flows of a window.
template <typename Make, typename Visit>
void for_each(const std::vector<Flow>& flows, const Layout& layout, Make make, Visit visit) {
  for (std::size_t flow = 0; flow < flows.size(); ++flow)
    for (int number = 0; number < layout.window(); ++number)
      visit(flows[flow], make(flow, number), number);
}

}  // namespace

Verified verify(const World& world, Exchange& exchange, const Layout& layout, Buffers& buffers) {
  const Flows& flows = exchange.flows();
  const auto sent = [&](std::size_t flow, int number) {
    return message(layout, flow, number, world.rank(), flows.to[flow].peer, flows.to[flow].tag);
  };
  const auto received = [&](std::size_t flow, int number) {
    return message(layout, flow, number, flows.from[flow].peer, world.rank(), flows.from[flow].tag);
  };
  for_each(flows.to, layout, sent,
           [&](const Flow&, const Message& message, int) { message.fill(buffers.source); });
  for_each(flows.from, layout, received,
           [&](const Flow&, const Message& message, int) { message.poison(buffers.sink); });
  world.barrier();
  exchange.run(layout);

  Verified result;
  for_each(flows.from, layout, received,
           [&](const Flow& flow, const Message& expected, int number) {
             ++result.messages;
             const Message::Difference difference = expected.compare(buffers.sink);
             if (difference.count == 0) return;
             if (result.wrong++ == 0)
               fmt::print(
                   stderr,
                   "rank {}: message {} of {} from rank {}: {} of {} bytes are wrong, the first at "
                   "{}\n",
                   world.rank(), number, layout.window(), flow.peer, difference.count,
                   layout.bytes(), difference.first);
           });
  return result;
}

}  // namespace mpi_bench
