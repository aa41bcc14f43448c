#include "lab/spread_set.hpp"

#include <fmt/format.h>

#include <random>

#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"

namespace polypath {
namespace {

// The CPU issues some hundred calls for a spread.
constexpr std::uint64_t kSpreadAheadBytes = 256 * kMiB;
constexpr int kSpreadAheadCopies = 4;

std::uint64_t random_seed() {
  std::random_device seeds;
  return std::uint64_t{seeds()} << 32 | seeds();
}

}  // namespace

SpreadSet::End::End(Context& context, int gpu, std::uint64_t bytes)
    : current(context.devices().context_for_program(gpu)),
      buffer(context.driver(), context.node(), MemoryId::gpu(gpu), bytes),
      stream(context.driver(), current) {}

SpreadSet::SpreadSet(Context& context, const SpreadRequest& request)
    : context_(context),
      request_(request),
      seed_(random_seed()),
      src_(context.driver(), context.node(), request.src, request.bytes, request.is_pageable) {
  src_.fill(seed_);
  for (const int gpu : request.gpus) {
    const End& end = ends_.emplace_back(context, gpu, request.bytes);
    // As a program that copies between GPUs has it: the driver stages such copies otherwise.
    if (request.src.is_gpu() && request.src.index != gpu) {
      context.devices().enable_peer_access(gpu, request.src.index);
      context.devices().enable_peer_access(request.src.index, gpu);
    }
    handles_.push_back(end.stream.get());
    streams_.push_back(end.stream.get());
    addresses_.push_back(reinterpret_cast<void*>(end.buffer.address()));
  }
  context_.prepare_spread(request.src, request.gpus);
}

void SpreadSet::issue_native() {
  ContextGuard guard(context_.driver());
  for (const End& end : ends_) {
    guard.use(end.current);
    POLYPATH_CHECK(context_.driver(), memcpy_async(end.buffer.address(), src_.address(),
                                                   request_.bytes, end.stream.get()));
  }
}

void SpreadSet::issue_polypath() {
  ContextGuard guard(context_.driver());
  guard.use(ends_.front().current);
  context_.spread_async(
      {addresses_.size(), addresses_.data(), src_.address(), request_.bytes, streams_.data()});
}

std::function<void()> SpreadSet::ahead() {
  if (context_.source().simulated || request_.is_pageable) return {};
  const MemoryId gpu = MemoryId::gpu(request_.gpus.front());
  while (ahead_.size() < 2)
    ahead_.push_back(
        std::make_unique<TestBuffer>(context_.driver(), context_.node(), gpu, kSpreadAheadBytes));
  return [this] {
    for (int i = 0; i < kSpreadAheadCopies; ++i)
      POLYPATH_CHECK(context_.driver(), memcpy_async(ahead_[1]->address(), ahead_[0]->address(),
                                                     kSpreadAheadBytes, handles_.front()));
  };
}

void SpreadSet::verify(const char* way, const std::function<void()>& issue) {
  for (End& end : ends_) end.buffer.poison();
  issue();
  for (const CUstream stream : handles_)
    POLYPATH_CHECK(context_.driver(), stream_synchronize(stream));
  for (const End& end : ends_)
    if (const auto wrong = end.buffer.first_difference(seed_))
      throw Error(fmt::format("{} copy to {} is wrong at byte {} of {}", way,
                              to_string(end.buffer.memory()), *wrong, request_.bytes));
}

}  // namespace polypath
