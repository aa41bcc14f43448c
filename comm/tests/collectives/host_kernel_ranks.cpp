#include "host_kernel_ranks.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "polypath/device/detail/ll_packet.hpp"
#include "simt/platform.cuh"
#include "simt/run.hpp"

namespace polypath::test {

/// What the next kernel of a stream finds in memory.
SIMT_KERNEL(test_take_results, 32, const std::uint32_t* memory, std::uint32_t* taken,
            std::size_t words) {
  for (std::size_t i = simt::thread_index(); i < words; i += 32)
    simt::store(taken + i, simt::load(memory + i));
}

namespace {

constexpr unsigned kThreads = 96;  // of a block: channels need three warps, others one
/// After each buffer, where a defect may store that takes it for a longer one; bytes.
constexpr std::size_t kBeyond = 64 * 1024;

/// Memory is as aligned as that of GPUs where it matters.
struct alignas(kWindowAlignment) Aligned {
  std::byte bytes[kWindowAlignment];
};

}  // namespace

struct HostKernelRanks::Calls {
  std::vector<std::vector<Image>> images;                 // by call and rank
  std::vector<std::vector<std::vector<Aligned>>> memory;  // by call and rank
  /// What a kernel found there right after the call, by call and rank; empty: none looked.
  std::vector<std::vector<std::vector<std::uint32_t>>> taken;
  std::vector<std::vector<simt::Launch>> launches;  // by rank and call
  simt::RunOptions options;
};

HostKernelRanks::HostKernelRanks(const ScratchShape& shape, std::uint32_t relays)
    : shape_(shape), ranks_(shape.ranks), relays_(relays) {
  for (Rank& rank : ranks_) {
    rank.scratch.resize(scratch_bytes(shape) / sizeof(Line));
    rank.lines.resize(1 + line_memory_bytes(shape) / sizeof(Line));
    rank.channel_ns.resize(std::size_t{2} * shape.channels);
  }
  for (std::vector<Line>& memory : relays_) memory.resize(relay_layout().bytes() / sizeof(Line));
}

RelayLayout HostKernelRanks::relay_layout() const {
  return {shape_, {shape_.ranks, static_cast<std::uint32_t>(relays_.size())}, shape_.slot_bytes};
}

bool HostKernelRanks::has_used_relay(std::uint32_t relay) const {
  return std::ranges::any_of(relays_[relay], [](const Line& line) {
    return std::ranges::any_of(line.bytes, [](std::byte byte) { return byte != std::byte{0}; });
  });
}

std::pair<std::uint32_t, std::uint32_t> HostKernelRanks::channel_ns(std::uint32_t rank,
                                                                    std::uint32_t channel) const {
  const std::vector<std::uint32_t>& all = ranks_[rank].channel_ns;
  return {all[2 * channel], all[2 * channel + 1]};
}

void HostKernelRanks::add_memory(Calls& calls) const {
  calls.launches.resize(ranks_.size());
  calls.options.access = look_;
  calls.options.whole_lines = has_whole_lines_;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
    for (const std::vector<Line>* const memory : {&ranks_[rank].scratch, &ranks_[rank].lines})
      calls.options.memory.push_back({const_cast<Line*>(memory->data()),
                                      memory->size() * sizeof(Line), static_cast<int>(rank)});
  int device = static_cast<int>(ranks_.size());
  for (const std::vector<Line>& memory : relays_)
    calls.options.memory.push_back(
        {const_cast<Line*>(memory.data()), memory.size() * sizeof(Line), device++});
  device = 0;
  for (const Rank& rank : ranks_)
    calls.options.memory.push_back({const_cast<std::uint32_t*>(rank.channel_ns.data()),
                                    rank.channel_ns.size() * sizeof(std::uint32_t), device++});
}

simt::Launch HostKernelRanks::launch_of(const CollectiveCase& what, std::uint32_t rank,
                                        unsigned char* memory, const Image& image,
                                        std::uint32_t flipped) {
  UnevenArgs args = args_of(what, shape_, rank);
  const std::uint32_t blocks = what.blocks_of(rank);
  args.mark.what ^= flipped;
  args.in = memory + image.in_at;
  args.out = memory + image.out_at;
  args.has_windows = what.has_windows ? 1 : 0;
  for (std::uint32_t peer = 0; peer < ranks_.size(); ++peer) {
    args.scratch[peer] = reinterpret_cast<unsigned char*>(ranks_[peer].scratch.data());
    args.lines[peer] = reinterpret_cast<unsigned char*>(ranks_[peer].lines.data());
    if ((what.windows >> rank & 1U) != 0 && peer != rank)
      args.windows[peer] = static_cast<unsigned char*>(args.out);
  }
  args.counts = args.scratch[rank];
  if (what.is_relayed && what.family == KernelFamily::channels) {
    args.relay_count = static_cast<std::uint32_t>(relays_.size());
    args.relay_slot_bytes = relay_layout().slot_bytes;
    for (std::size_t relay = 0; relay < relays_.size(); ++relay)
      args.relays[relay] = reinterpret_cast<unsigned char*>(relays_[relay].data());
    args.channel_ns = ranks_[rank].channel_ns.data();
  }
  args.wait_ctx = {&ranks_[rank].abort_flag, 1'000'000'000, &ranks_[rank].status,
                   &ranks_[rank].reports, 7};
  if (const char* wrong = validate_args(what.family, args, blocks))
    throw std::invalid_argument(what.text() + ": " + wrong);
  const KernelForm form = what.form();
  const char* const name = collective_kernel(what.family, what.op, what.type, form).name;
  const auto device = static_cast<int>(rank);
  if (takes_uneven_args(what.op, what.type, form))
    return simt::launch(name, device, blocks, kThreads, args);
  return simt::launch(name, device, blocks, kThreads, static_cast<CollectiveArgs>(args));
}

HostKernelRanks::Calls HostKernelRanks::prepare_row(const std::vector<CollectiveCase>& cases,
                                                    std::uint64_t seed) {
  Calls calls = prepare(cases, seed);
  Random random(seed);
  std::vector<std::vector<simt::Launch>> launches(ranks_.size());
  for (std::size_t call = 0; call < cases.size(); ++call) {
    auto& taken = calls.taken.emplace_back(ranks_.size());
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto* const memory =
          reinterpret_cast<const std::uint32_t*>(calls.memory[call][rank].data());
      launches[rank].push_back(calls.launches[rank][call]);
      if (random() % 2 == 0) continue;  // the next call follows at once
      taken[rank].resize(calls.images[call][rank].after.size() / sizeof(std::uint32_t) + 1);
      launches[rank].push_back(simt::launch("test_take_results", static_cast<int>(rank), 1, 32,
                                            memory, taken[rank].data(), taken[rank].size()));
      calls.options.memory.push_back(
          {taken[rank].data(), taken[rank].size() * sizeof(std::uint32_t), static_cast<int>(rank)});
    }
  }
  calls.launches = std::move(launches);
  return calls;
}

HostKernelRanks::Calls HostKernelRanks::prepare(const std::vector<CollectiveCase>& cases,
                                                std::uint64_t seed) {
  Calls calls;
  Random random(seed);
  calls.options.seed = random();
  add_memory(calls);
  for (const CollectiveCase& what : cases) {
    calls.images.push_back(images_of(random, what));
    auto& memory = calls.memory.emplace_back(ranks_.size());
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const Image& image = calls.images.back()[rank];
      const std::size_t bytes = image.before.size() + kBeyond;
      memory[rank].resize((bytes + sizeof(Aligned) - 1) / sizeof(Aligned));
      auto* const at = reinterpret_cast<unsigned char*>(memory[rank].data());
      std::memcpy(at, image.before.data(), image.before.size());
      calls.options.memory.push_back({at, bytes, static_cast<int>(rank)});
      calls.launches[rank].push_back(launch_of(what, rank, at, image));
    }
  }
  return calls;
}

std::uint32_t HostKernelRanks::marked_call(std::uint32_t rank, std::uint32_t half,
                                           std::uint32_t sender) const {
  device::ll_packet mark;
  const auto* const marks =
      reinterpret_cast<const std::byte*>(ranks_[rank].scratch.data()) + ScratchLayout::marks(half);
  std::memcpy(&mark, marks + sender * sizeof mark, sizeof mark);
  return mark.lap;
}

void HostKernelRanks::set_word(std::uint64_t offset, std::uint64_t value) {
  for (Rank& rank : ranks_)
    std::memcpy(reinterpret_cast<std::byte*>(rank.scratch.data()) + offset, &value, sizeof value);
}
void HostKernelRanks::set_calls_of_cells(std::uint64_t number) {
  set_word(ScratchLayout::calls(), number * kCallParts);
}
void HostKernelRanks::set_calls(std::uint64_t count) { set_word(ScratchLayout::meetings(), count); }

std::uint64_t HostKernelRanks::window(std::uint32_t rank, std::uint32_t channel,
                                      std::uint32_t receiver) const {
  device::ll_packet packet;
  const auto* const packets = reinterpret_cast<const std::byte*>(ranks_[rank].scratch.data()) +
                              ScratchLayout{shape_}.windows(channel);
  std::memcpy(&packet, packets + receiver * sizeof packet, sizeof packet);
  return packet.data[0] | std::uint64_t{packet.data[1]} << 32;
}

bool HostKernelRanks::has_used_slots(std::uint32_t ring) const {
  const ScratchLayout layout{shape_};
  for (std::uint32_t owner = 0; owner < ranks_.size(); ++owner) {
    const auto* const scratch =
        reinterpret_cast<const unsigned char*>(ranks_[owner].scratch.data());
    for (std::uint32_t sender = 0; sender < ranks_.size(); ++sender) {
      if (sender == owner) continue;
      const auto* const begin = scratch + layout.slot(ring, owner, sender, 0, 0);
      const auto bytes = std::ptrdiff_t{shape_.channels} * shape_.slots * shape_.slot_bytes;
      if (std::any_of(begin, begin + bytes, [](unsigned char byte) { return byte != 0; }))
        return true;
    }
  }
  return false;
}

std::string HostKernelRanks::run_row(const std::vector<CollectiveCase>& cases, std::uint64_t seed) {
  const Calls calls = prepare_row(cases, seed);
  if (const std::string error = simt::run(calls.launches, calls.options); !error.empty())
    return error;
  return difference_after(calls, cases);
}

std::string HostKernelRanks::run_together(const std::vector<HostKernelRanks*>& communicators,
                                          const std::vector<std::vector<CollectiveCase>>& rows,
                                          unsigned blocks_of_device, std::uint64_t seed) {
  std::vector<Calls> calls;
  std::vector<std::vector<simt::Launch>> launches;
  simt::RunOptions options;
  options.seed = seed;
  options.blocks_of_device = blocks_of_device;
  for (std::size_t i = 0; i < communicators.size(); ++i) {
    const Calls& of_this = calls.emplace_back(communicators[i]->prepare_row(rows[i], seed + i));
    launches.insert(launches.end(), of_this.launches.begin(), of_this.launches.end());
    const auto& memory = of_this.options.memory;
    options.memory.insert(options.memory.end(), memory.begin(), memory.end());
  }
  options.whole_lines = true;
  if (const std::string error = simt::run(launches, options); !error.empty()) return error;
  for (std::size_t i = 0; i < communicators.size(); ++i)
    if (const std::string text = communicators[i]->difference_after(calls[i], rows[i]);
        !text.empty())
      return "communicator " + std::to_string(i) + ": " + text;
  return {};
}

std::string HostKernelRanks::difference_after(const Calls& calls,
                                              const std::vector<CollectiveCase>& cases) const {
  for (std::size_t call = 0; call < cases.size(); ++call)
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const auto* const result =
          reinterpret_cast<const unsigned char*>(calls.memory[call][rank].data());
      std::string text = difference(calls.images[call][rank], result);
      if (text.empty() && !calls.taken[call][rank].empty())
        text = difference(calls.images[call][rank],
                          reinterpret_cast<const unsigned char*>(calls.taken[call][rank].data()));
      if (!text.empty())
        return "call " + std::to_string(call) + " on rank " + std::to_string(rank) + ": " +
               cases[call].text() + "\n" + text;
    }
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].status.given_up != 0)
      return "rank " + std::to_string(rank) + " gave up, waiting for rank " +
             std::to_string(ranks_[rank].status.waited_for_rank);
  return {};
}

std::string HostKernelRanks::run_without(std::uint32_t missing, const CollectiveCase& what,
                                         std::uint64_t seed) {
  Calls calls = prepare({what}, seed);
  calls.launches[missing].clear();
  return simt::run(calls.launches, calls.options);
}

std::string HostKernelRanks::run_late(std::uint32_t late, const std::vector<CollectiveCase>& cases,
                                      std::uint64_t seed, bool uncounted) {
  const Calls calls = prepare(cases, seed);
  std::vector<std::vector<simt::Launch>> launches(ranks_.size());
  const auto run = [&] {
    std::string error = simt::run(launches, calls.options);
    if (uncounted) {
      set_calls_of_cells(0);
      set_word(ScratchLayout::line_calls(), 0);
    }
    return error;
  };
  for (std::size_t call = 0; call < cases.size(); ++call) {
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank)
      if (rank != late) launches[rank] = {calls.launches[rank][call]};
    if (std::string error = run(); !error.empty()) return error;
  }
  for (std::vector<simt::Launch>& of_rank : launches) of_rank.clear();
  launches[late] = {calls.launches[late].front()};
  if (std::string error = run(); !error.empty()) return error;
  if (ranks_[late].status.given_up != 0) return {};
  const auto* const result =
      reinterpret_cast<const unsigned char*>(calls.memory.front()[late].data());
  return difference(calls.images.front()[late], result);
}

std::string HostKernelRanks::run_apart(const std::vector<CollectiveCase>& by_rank,
                                       std::uint32_t flipped, std::uint64_t seed) {
  Calls calls;
  Random random(seed);
  calls.options.seed = random();
  add_memory(calls);
  auto& memory = calls.memory.emplace_back(ranks_.size());
  std::vector<Image> images;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    Image& image = images.emplace_back(images_of(random, by_rank[rank])[rank]);
    image.before.resize(image.before.size() + kBeyond, 0x55);
    memory[rank].resize((image.before.size() + sizeof(Aligned) - 1) / sizeof(Aligned));
    auto* const at = reinterpret_cast<unsigned char*>(memory[rank].data());
    std::memcpy(at, image.before.data(), image.before.size());
    calls.options.memory.push_back({at, image.before.size(), static_cast<int>(rank)});
    calls.launches[rank].push_back(
        launch_of(by_rank[rank], rank, at, image, rank == 1 ? flipped : 0));
  }
  if (std::string error = simt::run(calls.launches, calls.options); !error.empty()) return error;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const auto* const result = reinterpret_cast<const unsigned char*>(memory[rank].data());
    Image& image = images[rank];
    image.after = image.before;
    const auto out = static_cast<std::ptrdiff_t>(image.out_at);
    std::copy_n(result + out, by_rank[rank].out_bytes(rank), image.after.begin() + out);
    if (const std::string text = difference(image, result); !text.empty())
      return "outside of the buffer of rank " + std::to_string(rank) + ": " + text;
  }
  return {};
}

}  // namespace polypath::test
