// What a communicator does on a stream: put, signal, wait, barrier. Groups: put_group.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/communicator_impl.hpp"
#include "core/copy_engine.hpp"
#include "driver/check.hpp"
#include "driver/resources.hpp"

namespace polypath {
namespace {

void require_rank(int to, int size) {
  if (to < 0 || to >= size)
    throw InvalidArgument(fmt::format("to is {}: there are ranks 0 to {}", to, size - 1));
}

const std::uint64_t* word_at(CUdeviceptr address) {
  return reinterpret_cast<const std::uint64_t*>(address);
}

}  // namespace

void Communicator::Impl::require(const Signal& signal) const {
  heap->require_range(signal.memory, signal.offset, sizeof signal.value, "signal.memory");
  if (!signal.memory.is_shared())
    throw NotSupported(
        fmt::format("signal.memory: without peer access signals are in memory of up to {} bytes, "
                    "which lies in host memory",
                    kMaxHostWords));
  if (signal.offset % sizeof signal.value != 0)
    throw InvalidArgument(fmt::format("signal.offset is {}, not a multiple of {}", signal.offset,
                                      sizeof signal.value));
}

void Communicator::Impl::require(const Put& put) const {
  require_rank(put.to, members.size());
  heap->require_range(put.memory, put.offset, put.bytes, "put.memory");
  if (put.src == 0 && put.bytes > 0) throw InvalidArgument("put.src is null");
}

void Communicator::Impl::tell(int to, const Signal& signal, CUstream stream, bool captured) {
  // The driver does not take its own into a capture.
  if (captured) {
    StreamSignalArgs args{};
    args.base = word_at(signal.memory.local());
    args.bytes = signal.memory.bytes();
    args.signals[0] = {reinterpret_cast<std::uint64_t*>(signal.memory.address(to) + signal.offset),
                       signal.value};
    args.signal_count = 1;
    waits->signal(args, stream);
    return;
  }
  // By default after a fence that orders it after all writes before it.
  POLYPATH_CHECK(*driver, stream_write_value64(stream, signal.memory.address(to) + signal.offset,
                                               signal.value, 0));
}

CurrentContext Communicator::Impl::on(CUstream stream, const char* what) {
  require_usable();
  if (driver->stream_write_value64 == nullptr)
    throw NotSupported("the driver has no cuStreamWriteValue64");
  // A default stream belongs to the context that is current.
  if (!is_special_stream(stream)) {
    CUcontext stream_context = nullptr;
    POLYPATH_CHECK(*driver, stream_get_ctx(stream, &stream_context));
    if (stream_context != context->get())
      throw InvalidArgument(
          fmt::format("{}: stream is not one of the primary context of gpu{}, the GPU of rank {}",
                      what, members.all[static_cast<std::size_t>(members.rank)].gpu, members.rank));
  }
  return {*driver, context->get()};
}

void Communicator::Impl::copy(const Put& put, CUstream stream) {
  const CUdeviceptr dst = put.memory.address(put.to) + put.offset;
  if (engine != nullptr) {
    engine->copy_async({dst, put.src, put.bytes, stream});
  } else {
    POLYPATH_CHECK(*driver, memcpy_async(dst, put.src, put.bytes, stream));
  }
  ++puts_by_copies;
}

void Communicator::put(const Put& put, CUstream stream) {
  impl_->require(put);
  const CurrentContext current = impl_->on(stream, "put");
  if (put.bytes == 0) return;
  const PutWithSignal entry{put, {}};
  if (impl_->fit_kernel({&entry, 1}, stream))
    impl_->put_by_kernel({&entry, 1}, {}, stream);
  else
    impl_->copy(put, stream);
}

void Communicator::put(const Put& put, const Signal& then, CUstream stream) {
  impl_->require(put);
  impl_->require(then);
  const CurrentContext current = impl_->on(stream, "put");
  const PutWithSignal entry{put, then};
  if (put.bytes > 0 && impl_->fit_kernel({&entry, 1}, stream))
    return impl_->put_by_kernel({&entry, 1}, {}, stream);
  if (put.bytes > 0) impl_->copy(put, stream);
  impl_->tell(put.to, then, stream, is_captured(*impl_->driver, stream));
}

PutCounts Communicator::put_counts() const noexcept {
  return {impl_->puts_by_kernel, impl_->puts_by_copies};
}

void Communicator::signal(int to, const Signal& signal, CUstream stream) {
  require_rank(to, size());
  impl_->require(signal);
  const CurrentContext current = impl_->on(stream, "signal");
  impl_->tell(to, signal, stream, is_captured(*impl_->driver, stream));
}

void Communicator::wait_signal(const Signal& signal, CUstream stream) {
  impl_->require(signal);
  const CurrentContext current = impl_->on(stream, "wait_signal");
  impl_->waits->wait({word_at(signal.memory.local() + signal.offset), signal.value, signal.offset,
                      signal.memory.bytes(), wait_ctx()},
                     stream);
}

void Communicator::signal_and_wait(const SignalSet& set, CUstream stream) {
  const CurrentContext current = impl_->on(stream, "signal_and_wait");
  const CUdeviceptr base = set.memory.local();
  StreamSignalArgs args{};
  args.base = word_at(base);
  args.bytes = set.memory.bytes();
  args.wait_ctx = wait_ctx();
  args.begins_epoch = set.begins_epoch;
  const auto word_of = [](CUdeviceptr memory, std::uint64_t offset) {
    return reinterpret_cast<std::uint64_t*>(memory + offset);
  };
  if (set.epoch_offset) args.epoch = word_of(base, *set.epoch_offset);
  for (const SignalSet::Word& word : set.signals)
    args.signals[args.signal_count++] = {word_of(set.memory.address(word.rank), word.offset),
                                         word.value};
  for (std::size_t first = 0; first == 0 || first < set.awaited.size(); first += kMaxWaits) {
    args.awaited_count = 0;
    for (const SignalSet::Word& word :
         set.awaited.subspan(first, std::min<std::size_t>(kMaxWaits, set.awaited.size() - first)))
      args.awaited[args.awaited_count++] = {word_of(base, word.offset), word.value};
    impl_->waits->signal(args, stream);
    args.signal_count = 0;
    args.begins_epoch = false;
  }
}

void Communicator::wait_network(const std::uint64_t* word, std::uint64_t count, CUstream stream) {
  const CurrentContext current = impl_->on(stream, "wait_network");
  wait_context longer = wait_ctx();
  longer.time_limit_ns *= 2;
  impl_->waits->wait({word, count, 0, HostFlags::kExchanges, longer}, stream);
}

void Communicator::begin_exchange(ExchangeArgs args, CUstream stream) {
  const CurrentContext current = impl_->on(stream, "begin_exchange");
  args.wait_ctx = wait_ctx();
  impl_->waits->begin_exchange(args, stream);
}

void Communicator::end_exchange(ExchangeArgs args, std::uint32_t number, CUstream stream) {
  const CurrentContext current = impl_->on(stream, "end_exchange");
  args.wait_ctx = wait_ctx();
  args.wait_ctx.kernel = number;
  impl_->waits->end_exchange(args, stream);
}

void Communicator::barrier(CUstream stream) {
  Impl& impl = *impl_;
  const CurrentContext current = impl.on(stream, "barrier");
  if (is_captured(*impl.driver, stream)) note_uncounted_waits();
  StreamSignalArgs args{};
  args.base = word_at(impl.barrier_words.local());
  args.wait_ctx = wait_ctx();
  // Counted on the GPU, so that a graph counts further at each launch.
  args.epoch = reinterpret_cast<std::uint64_t*>(impl.own_words.local() + impl.epoch_offset());
  args.begins_epoch = true;
  const auto word_of = [&](CUdeviceptr memory, int rank) {
    return reinterpret_cast<std::uint64_t*>(memory +
                                            sizeof(std::uint64_t) * static_cast<unsigned>(rank));
  };
  // One kernel, up to nine ranks. All are told before any is awaited.
  const auto launch = [&] {
    impl.waits->signal(args, stream);
    args.signal_count = args.awaited_count = 0;
    args.begins_epoch = false;
  };
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    if (args.signal_count == kMaxSignals) launch();
    args.signals[args.signal_count++] = {word_of(impl.barrier_words.address(other), rank()), 0};
  }
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    if (args.awaited_count == kMaxWaits) launch();
    args.awaited[args.awaited_count++] = {word_of(impl.barrier_words.local(), other), 0};
  }
  if (args.signal_count + args.awaited_count > 0) launch();
}

bool Communicator::streams_wait() const { return impl_->waits->any(); }

}  // namespace polypath
