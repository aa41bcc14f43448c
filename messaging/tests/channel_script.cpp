#include "channel_script.hpp"

#include <algorithm>

#include "polypath/device/status.hpp"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

constexpr std::size_t kWindowBytes = std::size_t{1} << 20;
constexpr std::uint32_t kPoison = 0xDEADBEEF;

bool would_take(std::uint32_t source, std::uint32_t tag, std::uint32_t from,
                std::uint32_t message_tag) {
  return (source == device::any_source || source == from) &&
         (tag == device::any_tag || tag == message_tag);
}

}  // namespace

ChannelScript::ChannelScript(const ChannelCase& test_case, std::uint64_t seed)
    : case_(test_case),
      seed_(seed),
      random_(seed * 977 + 5),
      memory_(test_case.shape, kWindowBytes),
      taken_(test_case.shape.ranks, 0),
      parts_(std::size_t{test_case.shape.ranks} * test_case.shape.contexts) {
  for (std::uint32_t context = 0; context < test_case.shape.contexts; ++context) draw(context);
}

unsigned char* ChannelScript::take(std::uint32_t rank, std::uint32_t bytes) {
  // Now and then at an odd address; never two buffers side by side.
  std::size_t& taken = taken_[rank];
  taken += below(3) == 0 ? 1 + below(15) : 16 - taken % 16;
  unsigned char* const at = memory_.window(rank) + taken;
  taken += bytes + 1;
  if (taken > kWindowBytes) throw std::logic_error("a larger window");
  return at;
}

void ChannelScript::draw(std::uint32_t context) {
  const ChannelShape& shape = case_.shape;
  const std::uint32_t sizes[] = {
      0, 1, 4, 5, 8, 16, 17, 100, shape.eager_bytes, shape.eager_bytes + 1, case_.max_bytes};
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
    for (unsigned i = 0; i < case_.messages; ++i) {
      const std::uint32_t from = below(shape.ranks);
      Message message{from, rank,   below(4), std::min(sizes[below(11)], case_.max_bytes),
                      0,    nullptr};
      if (case_.any_sources && message.tag % 2 == 1) message.bytes = std::max(message.bytes, 4U);
      message.data = take(from, message.bytes);
      for (std::uint32_t at = 0; at < message.bytes; ++at)
        message.data[at] = static_cast<unsigned char>(random_());
      part(context, from).sends.push_back(message);
    }
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
    std::ranges::shuffle(part(context, rank).sends, random_);
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) draw_receives(context, rank);
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) make_calls(part(context, rank));
}

std::vector<ChannelScript::Message> ChannelScript::messages_to(std::uint32_t context,
                                                               std::uint32_t rank) const {
  std::vector<Message> result;
  for (std::uint32_t from = 0; from < case_.shape.ranks; ++from)
    for (const Message& message : part(context, from).sends)
      if (message.to == rank) result.push_back(message);
  return result;
}

void ChannelScript::draw_receives(std::uint32_t context, std::uint32_t rank) {
  Part& own = part(context, rank);
  const std::vector<Message> messages = messages_to(context, rank);
  for (unsigned attempt = 0;; ++attempt) {
    own.receives.clear();
    for (const Message& message : messages) {
      const bool any_source = case_.any_sources && message.tag % 2 == 1;
      // With any source every message with the tag fits; else wildcards of tags, the fewer the
      // more often they left a message without its receive.
      const bool any_tag = !case_.any_sources && attempt < 40 && below(2 + attempt / 4) == 0;
      const std::uint32_t capacity = below(6) == 0 ? message.bytes / 2 : message.bytes + below(20);
      own.receives.push_back({any_source ? device::any_source : message.source,
                              any_tag ? device::any_tag : message.tag,
                              any_source ? case_.max_bytes : capacity, 0, nullptr});
    }
    std::ranges::shuffle(own.receives, random_);
    if (match(context, rank)) break;
  }
  for (Receive& receive : own.receives) {
    receive.data = take(rank, receive.capacity);
    std::fill_n(receive.data, receive.capacity, 0xA5);
  }
}

/// The literal rule: each message, as it comes, goes to the first posted receive that would have
/// it. Without any_source the order in which several ranks' come makes no difference.
bool ChannelScript::match(std::uint32_t context, std::uint32_t rank) {
  Part& own = part(context, rank);
  const std::vector<Message> messages = messages_to(context, rank);
  for (std::size_t m = 0; m < messages.size(); ++m) {
    const auto receive = std::ranges::find_if(own.receives, [&](const Receive& each) {
      return each.match < 0 &&
             would_take(each.source, each.tag, messages[m].source, messages[m].tag);
    });
    if (receive == own.receives.end()) return false;
    receive->match = static_cast<int>(m);
  }
  return true;
}

void ChannelScript::make_calls(Part& part) {
  std::vector<ChannelOp> begins;
  for (Message& send : part.sends)
    begins.push_back({ChannelCall::send, send.to, send.tag, 0, send.bytes, send.data});
  for (Receive& receive : part.receives)
    begins.push_back(
        {ChannelCall::receive, receive.source, receive.tag, 0, receive.capacity, receive.data});
  // Sends among themselves and receives among themselves keep their order.
  std::vector<bool> is_send(begins.size(), false);
  std::fill_n(is_send.begin(), part.sends.size(), true);
  std::shuffle(is_send.begin(), is_send.end(), random_);
  std::size_t sends = 0;
  std::size_t receives = 0;
  for (std::uint32_t i = 0; i < is_send.size(); ++i) {
    ChannelOp call = is_send[i] ? begins[sends] : begins[part.sends.size() + receives];
    call.request = i;
    if (is_send[i])
      part.sends[sends++].request = i;
    else
      part.receives[receives++].request = i;
    part.calls.push_back(call);
    if (below(4) == 0)  // of a request that there has not been: carries on the others
      part.calls.push_back({ChannelCall::test, 0, 0, kMaxRequests - 1, 0, nullptr});
  }
  std::vector<const Receive*> into(is_send.size(), nullptr);
  for (const Receive& receive : part.receives) into[receive.request] = &receive;
  std::vector<std::uint32_t> order(is_send.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::shuffle(order, random_);
  for (const std::uint32_t request : order)
    part.calls.push_back({ChannelCall::wait, 0, 0, request,
                          into[request] == nullptr ? 0 : into[request]->capacity,
                          into[request] == nullptr ? nullptr : into[request]->data});
}

std::string ChannelScript::run() {
  const ChannelShape& shape = case_.shape;
  std::size_t stride = kMaxRequests;
  for (const Part& each : parts_) stride = std::max(stride, each.calls.size());
  std::vector<std::vector<ChannelOp>> calls(shape.ranks);
  std::vector<std::vector<ChannelResult>> results(shape.ranks);
  std::vector<std::vector<device::request>> requests(shape.ranks);
  std::vector<std::vector<simt::Launch>> rows;
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    calls[rank].assign(stride * shape.contexts,
                       ChannelOp{ChannelCall::test, 0, 0, kMaxRequests - 1, 0, nullptr});
    results[rank].assign(stride * shape.contexts, {kPoison, kPoison, kPoison, kPoison, 0});
    requests[rank].resize(std::size_t{kMaxRequests} * shape.contexts);
    for (std::uint32_t context = 0; context < shape.contexts; ++context)
      std::ranges::copy(part(context, rank).calls,
                        calls[rank].begin() + static_cast<std::ptrdiff_t>(stride * context));
    // In several kernels: what is under way is kept between them.
    std::vector<simt::Launch> row;
    for (std::uint32_t first = 0; first < stride;) {
      const auto last = static_cast<std::uint32_t>(
          std::min<std::size_t>(stride, first + 1 + below(static_cast<unsigned>(stride))));
      const ChannelRow kernel{memory_.view(rank),
                              case_.members,
                              static_cast<std::uint32_t>(stride),
                              first,
                              last,
                              calls[rank].data(),
                              requests[rank].data(),
                              results[rank].data()};
      row.push_back(simt::launch("polypath_test_channel", static_cast<int>(rank), shape.contexts,
                                 64, kernel));
      first = last;
    }
    rows.push_back(row);
  }
  simt::RunOptions options;
  options.seed = seed_;
  options.max_steps = 20'000'000;
  const std::string error = simt::run(rows, options);
  if (!error.empty()) return error;
  for (std::uint32_t context = 0; context < shape.contexts; ++context)
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
      const auto begin = results[rank].begin() + static_cast<std::ptrdiff_t>(stride * context);
      part(context, rank).results.assign(begin, begin + static_cast<std::ptrdiff_t>(stride));
    }
  for (std::uint32_t context = 0; context < shape.contexts; ++context)
    for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
      if (std::string wrong = check(context, rank); !wrong.empty()) return wrong;
  return "";
}

std::string ChannelScript::check_one(const Receive& receive, const ChannelResult& result,
                                     const Message& message) const {
  const std::uint32_t taken = std::min(message.bytes, receive.capacity);
  const bool fits = message.bytes <= receive.capacity;
  const auto status = fits ? device::status::done : device::status::truncated;
  if (result.status != static_cast<std::uint32_t>(status))
    return "a receive ended with " + std::to_string(result.status);
  if (result.source != message.source || result.tag != message.tag) return "another message";
  if (result.bytes != taken) return "another length";
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < taken; ++i) sum += (message.data[i] + 1U) * (i * 2 + kSumFactor);
  if (result.sum != sum) return "other bytes when the receive was done";
  if (!std::equal(message.data, message.data + taken, receive.data)) return "other bytes";
  unsigned char* const end = receive.data + receive.capacity;
  if (std::any_of(receive.data + taken, end, [](unsigned char each) { return each != 0xA5; }))
    return "bytes behind the message";
  return "";
}

std::string ChannelScript::check(std::uint32_t context, std::uint32_t rank) {
  const Part& own = part(context, rank);
  for (const Message& send : own.sends)
    if (own.results[send.request].status != 0)
      return "a send ended with " + std::to_string(own.results[send.request].status);
  const std::vector<Message> messages = messages_to(context, rank);
  std::vector<int> receiver(messages.size(), -1);
  for (std::size_t r = 0; r < own.receives.size(); ++r) {
    const Receive& receive = own.receives[r];
    const ChannelResult& result = own.results[receive.request];
    if (receive.source != device::any_source) {
      const auto expected = static_cast<std::size_t>(receive.match);
      if (std::string wrong = check_one(receive, result, messages[expected]); !wrong.empty())
        return wrong;
      continue;
    }
    // Which one is open, but of each source they come in their order.
    std::size_t m = 0;
    while (m < messages.size() && (receiver[m] >= 0 || messages[m].source != result.source ||
                                   messages[m].tag != result.tag))
      ++m;
    if (m == messages.size()) return "a message that nobody sent";
    receiver[m] = static_cast<int>(r);
    if (std::string wrong = check_one(receive, result, messages[m]); !wrong.empty())
      return wrong + ", of any source";
  }
  return "";
}

}  // namespace polypath::test
