#include "lab/collective_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <thread>

#include "base/error.hpp"
#include "base/units.hpp"
#include "tune/group_timer.hpp"

namespace polypath {
namespace {

/// Calls in one verified row, each with contents of its own, as long as they are small.
constexpr int kRow = 4;
constexpr std::uint64_t kMaxInRow = 64 * kMiB;
/// ... and where many ways are verified in turn.
constexpr std::uint64_t kMaxInShortRow = 4 * kMiB;
/// Ranks start a verified row at most this time apart.
constexpr int kSkewUs = 300;
constexpr unsigned char kPoison = 0xA5;
/// Rows until all ranks know of each other's relays. Where others load them, that may never be.
constexpr int kMaxSettling = 8;

/// Whether sums are in no order that is known here.
bool has_any_order(const CollectivePlan& plan) {
  return plan.algorithm == Algorithm::ring || (!plan.rank_order && !plan.request.needs_tree());
}

}  // namespace

/// What the calls of a row, on `stream`, read and write: of each call its own.
class CollectiveBench::Buffers {
 public:
  Buffers(const CudaDriver& driver, CUstream stream, const CollectiveShape& shape, int rank,
          int calls)
      : driver_(driver),
        stream_(stream),
        sent_(shape.sent(rank) * size_of(shape.type)),
        received_(shape.received(rank) * size_of(shape.type)) {
    for (int i = 0; i < calls; ++i) {
      send_.push_back(allocate(sent_));
      recv_.push_back(allocate(received_));
    }
    host_.resize(std::max(sent_, received_));
  }
  ~Buffers() {
    // A call that threw may have left kernels running; where they failed, nothing can be freed.
    const CUresult ended = driver_.stream_synchronize(stream_);
    if (ended != CUDA_SUCCESS) {
      warn_driver_error(driver_, ended, "stream_synchronize(stream_)");
      return;
    }
    for (const CUdeviceptr address : owned_) POLYPATH_WARN(driver_, mem_free(address));
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  [[nodiscard]] bool fits(const CollectiveShape& shape, int rank, int calls) const {
    return sent_ == shape.sent(rank) * size_of(shape.type) &&
           received_ == shape.received(rank) * size_of(shape.type) && this->calls() == calls;
  }
  [[nodiscard]] int calls() const { return static_cast<int>(send_.size()); }
  [[nodiscard]] CUdeviceptr send(int call) const { return send_[static_cast<std::size_t>(call)]; }
  [[nodiscard]] CUdeviceptr recv(int call) const { return recv_[static_cast<std::size_t>(call)]; }

  void fill(const CollectiveShape& shape, std::uint64_t seed, int rank) {
    for (int call = 0; call < calls(); ++call) {
      const auto memory = std::span(host_).first(sent_);
      fill_contribution(memory, shape.type, seed + static_cast<std::uint64_t>(call), rank);
      if (sent_ > 0) POLYPATH_CHECK(driver_, memcpy_sync(send(call), host(), sent_));
    }
    // Memory that is not pinned has been read by now, but not all of it may have arrived.
    POLYPATH_CHECK(driver_, stream_synchronize(nullptr));
  }
  void poison(CUstream stream) const {
    for (const CUdeviceptr address : recv_)
      if (received_ > 0)
        POLYPATH_CHECK(driver_, memset_d8_async(address, kPoison, received_, stream));
  }
  /// What is wrong; empty: nothing.
  std::string compare(const CollectiveShape& shape, std::uint64_t seed, int rank, bool any_order) {
    for (int call = 0; call < calls() && received_ > 0; ++call) {
      POLYPATH_CHECK(driver_, memcpy_sync(host(), recv(call), received_));
      const auto wrong =
          first_wrong_element(std::span(host_).first(received_), shape,
                              seed + static_cast<std::uint64_t>(call), rank, any_order);
      if (wrong)
        return fmt::format("element {} of call {} is wrong on rank {}", *wrong, call, rank);
    }
    return {};
  }

 private:
  CUdeviceptr allocate(std::uint64_t bytes) {
    CUdeviceptr address = 0;
    if (bytes == 0) return address;
    POLYPATH_CHECK(driver_, mem_alloc(&address, bytes));
    owned_.push_back(address);
    return address;
  }
  [[nodiscard]] CUdeviceptr host() { return reinterpret_cast<CUdeviceptr>(host_.data()); }

  const CudaDriver& driver_;
  CUstream stream_;
  std::uint64_t sent_;
  std::uint64_t received_;
  std::vector<CUdeviceptr> owned_, send_, recv_;
  std::vector<std::byte> host_;
};

CollectiveBench::CollectiveBench(Collectives& collectives, Baseline baseline,
                                 const NodeSource& source)
    : collectives_(collectives),
      comm_(collectives.communicator()),
      baseline_(std::move(baseline)),
      clock_(cpu_clock(source)),
      issuing_(issuing_notice(source)),
      stream_(comm_.driver(), comm_.context()),
      start_(comm_.driver(), comm_.context()),
      end_(comm_.driver(), comm_.context()) {
  if (baseline_.nccl == nullptr) return;
  std::vector<NcclId> ids(static_cast<std::size_t>(comm_.size()));
  NcclId id{};
  if (comm_.rank() == 0) id = baseline_.nccl->unique_id();
  comm_.exchange(id, std::as_writable_bytes(std::span(ids)));
  const CurrentContext current(comm_.driver(), comm_.context());
  nccl_ =
      std::make_unique<NcclCommunicator>(baseline_.nccl, ids.front(), comm_.rank(), comm_.size());
}

void CollectiveBench::agree(const std::string& problem) {
  using Text = std::array<char, 248>;
  Text text_part{};
  problem.copy(text_part.data(), text_part.size() - 1);
  std::vector<Text> all(static_cast<std::size_t>(comm_.size()));
  comm_.exchange(std::as_bytes(std::span(text_part)), std::as_writable_bytes(std::span(all)));
  for (const Text& text : all)
    if (text.front() != '\0') throw Error(text.data());
}

std::vector<double> CollectiveBench::slowest(const std::vector<double>& times) {
  std::vector<double> all(times.size() * static_cast<std::size_t>(comm_.size()));
  comm_.exchange(std::as_bytes(std::span(times)), std::as_writable_bytes(std::span(all)));
  std::vector<double> most = times;
  for (std::size_t i = 0; i < all.size(); ++i)
    most[i % times.size()] = std::max(most[i % times.size()], all[i]);
  return most;
}

void CollectiveBench::verify(const char* name, const Way& way, Buffers& buffers,
                             const CollectiveShape& shape, bool any_order) {
  const int rank = comm_.rank();
  seed_ += kRow;
  buffers.fill(shape, seed_, rank);
  buffers.poison(stream_.get());
  POLYPATH_CHECK(comm_.driver(), stream_synchronize(stream_.get()));
  agree({});  // all have filled: an early rank disturbs no poison
  std::mt19937_64 random(seed_ + static_cast<std::uint64_t>(rank));
  const std::chrono::microseconds skew(std::uniform_int_distribution(0, kSkewUs)(random));
  std::this_thread::sleep_for(skew);
  for (int call = 0; call < buffers.calls(); ++call)
    way({shape.op, shape.type, shape.reduction, shape.root, shape.count, buffers.send(call),
         buffers.recv(call)},
        stream_.get());
  POLYPATH_CHECK(comm_.driver(), stream_synchronize(stream_.get()));
  comm_.check();
  const std::string wrong = buffers.compare(shape, seed_, rank, any_order);
  agree(wrong.empty() ? wrong : fmt::format("{}: {}", name, wrong));
}

void CollectiveBench::settle(const std::function<void()>& call) {
  if (collectives_.relays().empty()) return;
  collectives_.wait_relays();
  for (int i = 0; i < kMaxSettling; ++i) {
    const std::uint64_t before = collectives_.counts().without_relays;
    call();
    if (collectives_.counts().without_relays == before) return;
  }
}

double CollectiveBench::time_row(const Way& way, const CollectiveCall& call, int calls,
                                 double* cpu_us) {
  const CudaDriver& driver = comm_.driver();
  agree({});
  issuing_(true);
  std::unique_ptr<void, std::function<void(void*)>> issuing(
      this, [this](void* /*self*/) { issuing_(false); });
  // In virtual time a rank that has issued nothing begins where the latest one is: all begin before
  // any of them is timed.
  POLYPATH_CHECK(driver, event_record(end_.get(), stream_.get()));
  agree({});
  POLYPATH_CHECK(driver, event_record(start_.get(), stream_.get()));
  const double begin = clock_();
  for (int i = 0; i < calls; ++i) way(call, stream_.get());
  *cpu_us = (clock_() - begin) / calls;
  POLYPATH_CHECK(driver, event_record(end_.get(), stream_.get()));
  issuing.reset();
  POLYPATH_CHECK(driver, stream_synchronize(stream_.get()));
  comm_.check();
  return elapsed_us(driver, start_, end_) / calls;
}

CollectiveBench::~CollectiveBench() {
  if (buffers_ == nullptr) return;  // moved from, or none
  const CurrentContext current(comm_.driver(), comm_.context(), std::nothrow);
  buffers_.reset();
}
CollectiveBench::CollectiveBench(CollectiveBench&&) noexcept = default;

CollectiveBench::Buffers& CollectiveBench::buffers_of(const CollectiveShape& shape, int calls) {
  if (buffers_ == nullptr || !buffers_->fits(shape, comm_.rank(), calls)) {
    buffers_.reset();
    buffers_ = std::make_unique<Buffers>(comm_.driver(), stream_.get(), shape, comm_.rank(), calls);
  }
  return *buffers_;
}

CollectiveBench::PairedUs CollectiveBench::compare(const CollectiveBenchRequest& request,
                                                   AlgorithmOverride second, bool verify_both) {
  const CollectiveRequest sizes =
      request_of_bytes(request.op, request.type, request.bytes, comm_.size());
  const CollectiveShape shape{request.op,   request.type, request.operation,   sizes.count,
                              comm_.size(), request.root, collectives_.order()};
  const CurrentContext current(comm_.driver(), comm_.context());
  const auto variant_of = [this](AlgorithmOverride choice) -> Way {
    return [this, choice](const CollectiveCall& call, CUstream stream) {
      collectives_.run(call, stream, choice);
    };
  };
  const Way planned = variant_of(AlgorithmOverride::planned);
  const Way other = variant_of(second);
  Buffers& buffers = buffers_of(shape, request.bytes <= kMaxInShortRow ? request.calls : 1);
  const CollectiveCall call{shape.op,    shape.type,      shape.reduction, shape.root,
                            shape.count, buffers.send(0), buffers.recv(0)};
  if (verify_both)
    verify("as planned", planned, buffers, shape, has_any_order(collectives_.plan(call)));
  const CollectivePlan& plan = collectives_.plan(call, second);
  verify(to_string(plan.algorithm).data(), other, buffers, shape, has_any_order(plan));
  std::vector<double> first_us, second_us;
  for (int i = -request.warmup; i < request.iterations; ++i) {
    double cpu = 0;
    const double row_us = time_row(planned, call, request.calls, &cpu);
    const double two = time_row(other, call, request.calls, &cpu);
    if (i < 0) continue;
    first_us.push_back(row_us);
    second_us.push_back(two);
  }
  return {slowest(first_us), slowest(second_us)};
}

nlohmann::json CollectiveBench::run(const CollectiveBenchRequest& request) {
  const CollectiveRequest sizes =
      request_of_bytes(request.op, request.type, request.bytes, comm_.size());
  const CollectiveShape shape{request.op,   request.type, request.operation,   sizes.count,
                              comm_.size(), request.root, collectives_.order()};
  const CurrentContext current(comm_.driver(), comm_.context());
  const Way ours = [&](const CollectiveCall& call, CUstream stream) {
    collectives_.run(call, stream, request.choice);
  };
  const bool compares = nccl_ != nullptr || baseline_.choice;
  const Way baseline_way = [&](const CollectiveCall& call, CUstream stream) {
    if (baseline_.choice) {
      collectives_.run(call, stream, *baseline_.choice);
      return;
    }
    nccl_->run(call.op, call.send, call.recv, call.count, call.type, call.operation, call.root,
               stream);
  };
  Buffers buffers(comm_.driver(), stream_.get(), shape, comm_.rank(),
                  request.bytes <= kMaxInRow ? kRow : 1);
  const std::string name = baseline_.choice ? std::string(to_string(*baseline_.choice))
                           : nccl_          ? "NCCL " + baseline_.nccl->version()
                                            : "";

  const CollectiveCall call{shape.op,    shape.type,      shape.reduction, shape.root,
                            shape.count, buffers.send(0), buffers.recv(0)};
  const CollectivePlan& plan = collectives_.plan(call, request.choice);
  const bool any_order = has_any_order(plan);
  verify("polypath", ours, buffers, shape, any_order);
  settle([&] { verify("polypath", ours, buffers, shape, any_order); });
  if (compares) verify(name.c_str(), baseline_way, buffers, shape, true);
  std::vector<double> us, cpu_us, baseline_us, baseline_cpu_us;
  for (int i = -request.warmup; i < request.iterations; ++i) {
    double cpu = 0;
    const double own_us = time_row(ours, call, request.calls, &cpu);
    if (i >= 0) {
      us.push_back(own_us);
      cpu_us.push_back(cpu);
    }
    if (!compares) continue;
    const double other = time_row(baseline_way, call, request.calls, &cpu);
    if (i >= 0) {
      baseline_us.push_back(other);
      baseline_cpu_us.push_back(cpu);
    }
  }
  verify("polypath, after it was timed", ours, buffers, shape, any_order);

  const double taken = median(slowest(us));
  const double factor = sizes.bus_factor();
  nlohmann::json row{{"op", to_string(shape.op)},
                     {"bytes", sizes.bytes()},
                     {"type", to_string(shape.type)},
                     {"ranks", comm_.size()},
                     {"algorithm", to_string(plan.algorithm)},
                     {"us", taken},
                     {"bus_gbps", factor * rate_gbps(sizes.bytes(), taken)},
                     {"predicted_us", plan.predicted_us},
                     {"limit_bus_gbps", plan.limit_bus_gbps},
                     {"cpu_us", median(slowest(cpu_us))},
                     {"verified", true},
                     {"exact", !any_order}};
  if (compares) {
    const double theirs_us = median(slowest(baseline_us));
    row["baseline"] = {{"name", name},
                       {"us", theirs_us},
                       {"bus_gbps", factor * rate_gbps(sizes.bytes(), theirs_us)},
                       {"cpu_us", median(slowest(baseline_cpu_us))}};
    row["speedup"] = theirs_us / taken;
  }
  return row;
}

}  // namespace polypath
