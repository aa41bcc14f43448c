#include "lab/transfer_set.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <random>

#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"

namespace polypath {
namespace {

/// Ahead of each transfer; with the gap between them each takes the GPU over 5 us, the CPU less
/// than 3.
constexpr std::size_t kCopiesAhead = 8;
constexpr double kAheadUs = 3;

/// The GPU whose stream carries a transfer: the source, as a program that sends would have it.
int issuing_gpu(const Request& request) {
  return request.src.is_gpu() ? request.src.index : request.dst.index;
}

}  // namespace

struct TransferSet::One {
  std::unique_ptr<TestBuffer> src;
  std::unique_ptr<TestBuffer> dst;
  std::unique_ptr<Stream> stream;
  CUcontext context = nullptr;
  std::uint64_t seed = 0;
};

TransferSet::TransferSet(Context& context, const std::vector<Request>& requests, int window)
    : context_(context), exact_(context.planner()), group_(requests.size()) {
  std::vector<Request> all_requests;
  for (int i = 0; i < window; ++i)
    all_requests.insert(all_requests.end(), requests.begin(), requests.end());
  context_.prepare(all_requests);

  const CudaDriver& driver = context_.driver();
  std::random_device seeds;
  for (const Request& request : all_requests) {
    One entry;
    entry.context = context_.devices().context(issuing_gpu(request));
    entry.src = std::make_unique<TestBuffer>(driver, context_.node(), request.src, request.bytes,
                                             request.is_pageable);
    entry.dst = std::make_unique<TestBuffer>(driver, context_.node(), request.dst, request.bytes,
                                             request.is_pageable);
    entry.stream = std::make_unique<Stream>(driver, entry.context);
    entry.seed = std::uint64_t{seeds()} << 32 | seeds();
    entry.src->fill(entry.seed);
    streams_.push_back(entry.stream->get());
    transfers_.push_back(
        {entry.dst->address(), entry.src->address(), request.bytes, streams_.back()});
    bytes_ += request.bytes;
    is_pageable_ = is_pageable_ || request.is_pageable;
    all_.push_back(std::move(entry));
  }
}

TransferSet::~TransferSet() = default;

void TransferSet::issue_native() {
  ContextGuard guard(context_.driver());
  for (std::size_t t = 0; t < all_.size(); ++t) {
    guard.use(all_[t].context);
    POLYPATH_CHECK(context_.driver(), memcpy_async(transfers_[t].dst, transfers_[t].src,
                                                   transfers_[t].bytes, transfers_[t].stream));
  }
}

void TransferSet::issue_polypath(const PreparedPlan* plan) {
  ContextGuard guard(context_.driver());
  for (std::size_t first = 0; first < all_.size(); first += group_) {
    guard.use(all_[first].context);
    const auto group = std::span(transfers_).subspan(first, group_);
    if (plan != nullptr)
      context_.follow(group, *plan);
    else
      context_.group_copy_async(group);
  }
}

PairSamples TransferSet::compare(const PreparedPlan& first, const PreparedPlan& second,
                                 PairOptions options) {
  options.ahead = ahead();
  return measure_pairs(
      context_.driver(), streams_, [&] { issue_polypath(&first); },
      [&] { issue_polypath(&second); }, options);
}

void TransferSet::poison() {
  for (const One& entry : all_) entry.dst->poison();
}

void TransferSet::wait() {
  for (const CUstream stream : streams_)
    POLYPATH_CHECK(context_.driver(), stream_synchronize(stream));
}

void TransferSet::verify(const char* way, const std::function<void()>& issue) {
  poison();
  issue();
  wait();
  for (std::size_t t = 0; t < all_.size(); ++t)
    if (const auto offset = all_[t].dst->first_difference(all_[t].seed))
      throw Error(fmt::format("{} copy of transfer {} is wrong at byte {} of {}", way, t, *offset,
                              transfers_[t].bytes));
}

std::function<void()> TransferSet::ahead() {
  const MemoryId src = all_.front().src->memory();
  const MemoryId dst = all_.front().dst->memory();
  const auto link = context_.node().find_link(src, dst);
  if (context_.source().simulated || !link || all_.size() > group_ || is_pageable_) return {};
  const double gbps = context_.node().links[static_cast<std::size_t>(*link)].gbps;
  const auto bytes = static_cast<std::uint64_t>(kAheadUs * gbps * kBytesPerGbpsUs);
  if (ahead_.empty())
    for (const MemoryId memory : {src, dst}) {
      ahead_.push_back(
          std::make_unique<TestBuffer>(context_.driver(), context_.node(), memory, bytes));
      ahead_.back()->fill(all_.front().seed);
    }
  return [this, bytes] {
    for (std::size_t i = 0; i < kCopiesAhead * all_.size(); ++i)
      POLYPATH_CHECK(context_.driver(), memcpy_async(ahead_[1]->address(), ahead_[0]->address(),
                                                     bytes, streams_.front()));
  };
}

}  // namespace polypath
