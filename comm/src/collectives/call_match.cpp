#include "collectives/call_match.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.hpp"
#include "collectives/call_arguments.hpp"
#include "collectives/plan/request.hpp"

namespace polypath {
namespace {

std::string text_of(std::uint32_t what, std::uint64_t count) {
  const CollectiveOp op = op_of_mark(what);
  if (op == CollectiveOp::allreduce && root_of_mark(what) != 0)
    return fmt::format("allreduce and norm of {} rows of {} {}{}", rows_of_mark(count),
                       hidden_of_mark(count), to_string(type_of_mark(what)),
                       root_of_mark(what) == kMarkOfNormToFloat8 ? " to float8" : "");
  std::string text = fmt::format("{}{} of {} {}", to_string(op), is_uneven_mark(what) ? "v" : "",
                                 count, to_string(type_of_mark(what)));
  if (combines(op)) text += fmt::format(" by {}", to_string(operator_of_mark(what)));
  if (has_root(op))
    text +=
        fmt::format(" {} rank {}", op == CollectiveOp::reduce ? "to" : "from", root_of_mark(what));
  return text;
}

}  // namespace

CallMark mark_of(const CollectiveCall& call, std::uint32_t how) {
  CallMark mark =
      call_mark(call.op, call.type, combines(call.op) ? call.operation : Operator::sum,
                has_root(call.op) ? static_cast<std::uint32_t>(call.root) : 0, call.count, how);
  if (!call.parts) return mark;
  std::uint64_t total = 0;
  for (const std::uint64_t part : *call.parts) {
    total += part;
    how = hash_with(how, part);
  }
  return uneven_mark(call_mark(call.op, call.type, operator_of_mark(mark.what), 0, total, how));
}

std::string mismatch_text(const wait_error& status, std::string_view other) {
  const std::string local = text_of(static_cast<std::uint32_t>(status.expected), status.offset);
  const std::string remote = text_of(static_cast<std::uint32_t>(status.seen), status.bytes);
  if (local != remote)
    return fmt::format("{}, but {} {} calls {}", local, other, status.waited_for_rank, remote);
  return fmt::format(
      "{}, and {} {} calls the same but runs it in another way: the options of "
      "the ranks, {}or their calls before this one, are not the same",
      local, other, status.waited_for_rank,
      is_uneven_mark(static_cast<std::uint32_t>(status.expected)) ? "the lengths of parts, " : "");
}

void compare_calls(Communicator& communicator, const CollectiveCall& call, std::uint32_t number) {
  constexpr std::array names{"operation", "type",          "count", "operator",
                             "root",      "kind of parts", "rest"};
  constexpr std::size_t kParts = names.size();
  using Record = std::array<std::uint64_t, kParts + kMaxRanks>;
  Record local{static_cast<std::uint64_t>(call.op),
               static_cast<std::uint64_t>(call.type),
               call.count,
               combines(call.op) ? static_cast<std::uint64_t>(call.operation) : 0,
               has_root(call.op) ? static_cast<std::uint64_t>(call.root) : 0,
               call.parts ? 1U : 0U,
               call.within};
  if (call.parts) std::ranges::copy(*call.parts, local.begin() + kParts);
  const auto text = [](std::size_t field, std::uint64_t value) -> std::string {
    if (field == 0) return std::string(to_string(static_cast<CollectiveOp>(value)));
    if (field == 1) return std::string(to_string(static_cast<DataType>(value)));
    if (field == 3) return std::string(to_string(static_cast<Operator>(value)));
    if (field == 5) return value != 0 ? "uneven" : "even";
    return std::to_string(value);
  };
  std::vector<Record> all(static_cast<std::size_t>(communicator.size()));
  communicator.exchange(std::as_bytes(std::span(local)), std::as_writable_bytes(std::span(all)));
  for (std::size_t field = 0; field < local.size(); ++field)
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (all[rank][field] != all[0][field])
        throw InvalidArgument(
            fmt::format("call {}: the {} of rank {} ({}) is not that of rank 0 ({})", number,
                        field < kParts ? names[field] : fmt::format("part {}", field - kParts),
                        rank, text(field, all[rank][field]), text(field, all[0][field])));
}

}  // namespace polypath
