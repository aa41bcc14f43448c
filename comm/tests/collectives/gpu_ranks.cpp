#include "gpu_ranks.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "collectives/kernels/relay_layout.h"

namespace polypath::test {

GpuRank::GpuRank(const CudaDriver& driver, std::uint32_t rank, std::uint32_t gpu)
    : driver_(driver), rank_(rank) {
  CUdevice device = 0;
  POLYPATH_CHECK(driver, device_get(&device, static_cast<int>(gpu)));
  POLYPATH_CHECK(driver, primary_ctx_retain(&context_, device));
  use();
  POLYPATH_CHECK(driver, stream_create(&stream_, CU_STREAM_NON_BLOCKING));
  void* pinned = nullptr;
  constexpr unsigned kFlags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
  POLYPATH_CHECK(driver, mem_host_alloc(&pinned, 4096, kFlags));
  status_ = new (pinned) wait_error{};
  abort_word_ = new (static_cast<unsigned char*>(pinned) + 1024) std::uint32_t{0};
  reports_ = reinterpret_cast<std::uint32_t*>(alloc(sizeof *reports_));
  load_kernels();
}

/// All, before any is launched: loading one may wait for kernels that run.
void GpuRank::load_kernels() {
  std::map<const unsigned char*, CUmodule> modules;
  const auto load = [&](const CollectiveKernel& kernel) {
    if (kernel.name == nullptr || functions_.contains(kernel.name)) return;
    CUmodule& module = modules[kernel.image.data()];
    if (module == nullptr) POLYPATH_CHECK(driver_, module_load_data(&module, kernel.image.data()));
    POLYPATH_CHECK(driver_, module_get_function(&functions_[kernel.name], module, kernel.name));
  };
  for (const bool is_fused : {false, true})
    for (const DataType type : {DataType::float16, DataType::bfloat16})
      load(norm_kernel(is_fused, type));
  for (const KernelFamily family : kKernelFamilies)
    for (const CollectiveOp op : {CollectiveOp::allreduce, CollectiveOp::all_gather})
      for (const SumOrder order : {SumOrder::rank, SumOrder::tree})
        for (const bool is_uneven : {false, true})
          for (int type = 0; type < 10; ++type)
            load(collective_kernel(family, op, static_cast<DataType>(type), {order, is_uneven}));
}

void GpuRank::use() const { POLYPATH_CHECK(driver_, ctx_set_current(context_)); }

CUdeviceptr GpuRank::alloc(std::uint64_t bytes) {
  use();
  CUdeviceptr memory = 0;
  POLYPATH_CHECK(driver_, mem_alloc(&memory, bytes));
  POLYPATH_CHECK(driver_, memset_d8_async(memory, 0, bytes, stream_));
  synchronize();
  return memory;
}

void GpuRank::launch(KernelFamily family, const UnevenArgs& args, KernelForm form,
                     std::uint32_t blocks) {
  UnevenArgs copy = args;
  launch_function(collective_kernel(family, args.op, args.type, form).name, &copy, blocks);
}

void GpuRank::launch_norm(bool is_fused, const NormArgs& args, std::uint32_t blocks) {
  NormArgs copy = args;
  launch_function(norm_kernel(is_fused, args.call.type).name, &copy, blocks);
}

void GpuRank::launch_function(const char* name, void* args, std::uint32_t blocks) {
  void* parameters[] = {args};
  POLYPATH_CHECK(driver_, launch_kernel(functions_.at(name), blocks, 1, 1, kCollectiveThreads, 1, 1,
                                        0, stream_, parameters, nullptr));
}

void GpuRank::synchronize() const { POLYPATH_CHECK(driver_, stream_synchronize(stream_)); }

GpuRanks::GpuRanks(const CudaDriver& driver, const ScratchShape& shape, std::uint32_t gpus,
                   std::uint32_t relays)
    : shape_(shape) {
  int there = 0;
  POLYPATH_CHECK(driver, device_get_count(&there));
  std::vector<CUcontext> between;
  for (std::uint32_t relay = 0; relay < relays; ++relay) {
    const int gpu = static_cast<int>(gpus + relay);
    POLYPATH_CHECK(driver, primary_ctx_retain(&between.emplace_back(),
                                              gpu < there ? gpu : static_cast<int>(relay % gpus)));
  }
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
    ranks_.push_back(std::make_unique<GpuRank>(driver, rank, rank % gpus));
  std::set<CUcontext> contexts;
  for (const auto& rank : ranks_) contexts.insert(rank->context_);
  contexts.insert(between.begin(), between.end());
  for (const CUcontext context : contexts) {
    POLYPATH_CHECK(driver, ctx_set_current(context));
    for (const CUcontext other : contexts)
      if (other != context) POLYPATH_CHECK(driver, ctx_enable_peer_access(other, 0));
  }
  for (const auto& rank : ranks_) {
    scratch_.push_back(rank->alloc(scratch_bytes(shape_)));
    if (shape_.line_bytes != 0) lines_.push_back(rank->alloc(line_memory_bytes(shape_)));
  }
  const RelayLayout layout{shape_, {shape_.ranks, relays}, shape_.slot_bytes};
  for (const CUcontext context : between) {
    POLYPATH_CHECK(driver, ctx_set_current(context));
    POLYPATH_CHECK(driver, mem_alloc(&relays_.emplace_back(), layout.bytes()));
  }
}

void GpuRanks::complete(CollectiveArgs& args, CUdeviceptr in, CUdeviceptr out,
                        bool is_relayed) const {
  args.in = reinterpret_cast<const void*>(in);
  args.out = reinterpret_cast<void*>(out);
  for (std::uint32_t rank = 0; rank < size(); ++rank) {
    args.scratch[rank] = reinterpret_cast<unsigned char*>(scratch_[rank]);
    if (!lines_.empty()) args.lines[rank] = reinterpret_cast<unsigned char*>(lines_[rank]);
  }
  if (is_relayed) {
    args.relay_count = relays();
    args.relay_slot_bytes = shape_.slot_bytes;
    for (std::uint32_t relay = 0; relay < relays(); ++relay)
      args.relays[relay] = reinterpret_cast<unsigned char*>(relays_[relay]);
  }
  args.counts = args.scratch[args.rank];
  const GpuRank& rank = *ranks_[args.rank];
  args.wait_ctx = {rank.abort_word_, 5'000'000'000, rank.status_, rank.reports_, 1};
}

void GpuRanks::on_all(const std::function<void(GpuRank&)>& run) {
  std::mutex mutex;
  std::exception_ptr failure;
  {
    std::vector<std::jthread> threads;
    for (const auto& rank : ranks_)
      threads.emplace_back([&] {
        try {
          rank->use();
          run(*rank);
        } catch (...) {
          const std::scoped_lock lock(mutex);
          failure = std::current_exception();
        }
      });
  }
  if (failure) std::rethrow_exception(failure);
}

std::string GpuRanks::failures() const {
  std::string text;
  for (const auto& rank : ranks_) {
    const volatile wait_error& status = *rank->status_;
    if (status.given_up == 0) continue;
    text += "rank " + std::to_string(rank->rank_) + ", block " + std::to_string(status.block) +
            " gave up (" + std::to_string(status.reason) + "): rank " +
            std::to_string(status.waited_for_rank) + " was to bring " +
            std::to_string(status.expected) + ", but " + std::to_string(status.seen) +
            " was there\n";
  }
  return text;
}

std::uint32_t RankCounts::max_blocks(const CudaDriver& driver) const {
  int multiprocessors = 0;
  POLYPATH_CHECK(
      driver, device_get_attribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  return std::max(1U, static_cast<std::uint32_t>(multiprocessors) / ((ranks + gpus - 1) / gpus));
}

RankCounts counted(const CudaDriver& driver, RankCounts asked) {
  int there = 0;
  POLYPATH_CHECK(driver, device_get_count(&there));
  const auto all = static_cast<std::uint32_t>(there);
  RankCounts counts = asked;
  if (counts.gpus == 0) counts.gpus = std::min(all, asked.ranks != 0 ? asked.ranks : kMaxRanks);
  if (counts.ranks == 0) counts.ranks = counts.gpus;
  counts.gpus = std::min(counts.gpus, counts.ranks);
  if (counts.gpus == 0 || counts.gpus > all || counts.ranks > kMaxRanks)
    throw std::runtime_error("there are " + std::to_string(all) + " GPUs, for up to " +
                             std::to_string(kMaxRanks) + " ranks");
  return counts;
}

}  // namespace polypath::test
