#include "comm/symmetric_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "comm/deferred_memory.hpp"
#include "comm/memory_offer.hpp"
#include "comm/rank_error.hpp"
#include "comm/relay_memory.hpp"
#include "core/copy_engine.hpp"
#include "driver/check.hpp"
#include "driver/context_resets.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {
namespace {

/// Ranks of a communicator that know where others address their memory: collectives have no more.
constexpr std::size_t kMaxViewers = 8;

void free_on_relay(const CudaDriver& driver, const RelayMemory::Own& own) {
  const ContextInUse in_use(*own.context);
  if (own.address == 0 || !in_use) return;
  const CurrentContext current(driver, own.context->get(), std::nothrow);
  POLYPATH_WARN(driver, mem_free(own.address));
}

}  // namespace

SymmetricHeap::SymmetricHeap(Place place) : place_(std::move(place)) {}

/// What a rank tells the others after it has opened theirs.
struct SymmetricHeap::View {
  RankError problem;
  std::array<CUdeviceptr, kMaxViewers> addresses{};  ///< of each rank's memory, for this one
};

SymmetricHeap::~SymmetricHeap() {
  if (!pieces_.empty() || !lost_.empty() || deferred_ != nullptr || relays_ != nullptr) release()();
}

DeferredMemory& SymmetricHeap::defer(std::uint64_t bytes) {
  if (deferred_ != nullptr && deferred_->was_wanted())
    throw InvalidArgument("defer: there is such memory already");
  SymmetricMemory memory = next_memory(bytes);
  last_number_ = memory.number_;
  deferred_ = std::make_unique<DeferredMemory>(*this, std::move(memory));
  return *deferred_;
}

RelayMemory* SymmetricHeap::reserve_relays(Devices& devices, std::vector<int> gpus,
                                           std::uint64_t bytes, std::size_t pinned_bytes) {
  if (relays_ != nullptr && (relays_->was_wanted() || !relays_->is_stopped())) return nullptr;
  relays_ = std::make_unique<RelayMemory>(*this, devices, std::move(gpus), bytes, pinned_bytes);
  return relays_.get();
}

SymmetricHeap::Offer SymmetricHeap::offer(Piece& piece, std::uint64_t bytes,
                                          SymmetricUse use) const {
  const CudaDriver& driver = *place_.driver;
  const Members& members = place_.members;
  Offer offer;
  offer.problem.catch_from([&] {
    const CurrentContext current(driver, place_.context->get());
    const bool exported = members.here() < members.size() && use != SymmetricUse::local;
    const std::uint64_t size = exported ? exported_bytes(bytes) : bytes;
    if (piece.own == 0) POLYPATH_CHECK(driver, mem_alloc(&piece.own, size));
    POLYPATH_CHECK(driver, memset_d8_async(piece.own, 0, size, place_.stream));
    POLYPATH_CHECK(driver, stream_synchronize(place_.stream));
    if (exported) POLYPATH_CHECK(driver, ipc_get_mem_handle(&offer.handle, piece.own));
    offer.address = piece.own;
  });
  return offer;
}

void SymmetricHeap::open(Piece& piece, SymmetricMemory& memory,
                         const std::vector<Offer>& offers) const {
  const CudaDriver& driver = *place_.driver;
  const Members& members = place_.members;
  const CurrentContext current(driver, place_.context->get());
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    const Member& member = members.all[rank];
    if (member.here) {
      memory.addresses_[rank] = offers[rank].address;
      continue;
    }
    if (piece.imports[rank] != 0) continue;
    POLYPATH_CHECK(driver, ipc_open_mem_handle(&piece.imports[rank], offers[rank].handle,
                                               CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    memory.addresses_[rank] = piece.imports[rank];
    if (piece.import_observer != nullptr)
      piece.import_observer->memory_imported(offers[rank].handle, piece.imports[rank], member.gpu);
  }
}

void SymmetricHeap::close(Piece& piece) const noexcept {
  const CudaDriver& driver = *place_.driver;
  const CurrentContext current(driver, place_.context->get(), std::nothrow);
  for (CUdeviceptr& import : piece.imports) {
    if (import == 0) continue;
    if (piece.import_observer != nullptr) piece.import_observer->memory_closed(import);
    POLYPATH_WARN(driver, ipc_close_mem_handle(import));
    import = 0;
  }
}

bool SymmetricHeap::goes_to_host(std::uint64_t bytes, SymmetricUse use) const {
  if (place_.placement == SymmetricPlacement::gpus) return false;
  switch (use) {
    case SymmetricUse::local: return false;
    case SymmetricUse::direct: return true;
    case SymmetricUse::peers:
      throw NotSupported(
          "the GPUs of these ranks have no peer access: messages between kernels need it");
    case SymmetricUse::transfers: break;
  }
  if (bytes <= kMaxHostWords) return true;
  if (place_.members.here() == place_.members.size()) return false;
  throw NotSupported(fmt::format(
      "alloc of {} bytes: the GPUs of these ranks have no peer access, so no process can put into "
      "another one's GPU memory; up to {} bytes lie in host memory, for signals",
      bytes, kMaxHostWords));
}

SymmetricMemory SymmetricHeap::alloc(std::uint64_t bytes, SymmetricUse use) {
  if (bytes == 0) throw InvalidArgument("alloc: bytes is 0");
  place_.board->require_usable();
  return goes_to_host(bytes, use) ? alloc_on_host(bytes) : alloc_on_gpus(bytes, use);
}

SymmetricMemory SymmetricHeap::next_memory(std::uint64_t bytes) const {
  SymmetricMemory memory;
  memory.owner_ = place_.board->id();
  memory.number_ = last_number_ + 1;
  memory.bytes_ = bytes;
  memory.rank_ = place_.members.rank;
  memory.addresses_.resize(static_cast<std::size_t>(place_.members.size()));
  return memory;
}

std::shared_ptr<const SharedHostMemory> SymmetricHeap::alloc_host(std::uint64_t bytes,
                                                                  std::vector<int> hosts,
                                                                  Call::Kind call) {
  return SharedHostMemory::make(
      {place_.driver, place_.node, place_.board, place_.members, place_.context, *place_.limit,
       ++host_memories_, std::move(hosts), call},
      bytes);
}

// Each rank's part is near to its own GPU, which reads it, and polls.
SymmetricMemory SymmetricHeap::alloc_on_host(std::uint64_t bytes) {
  std::vector<int> hosts;
  for (const Member& member : place_.members.all)
    hosts.push_back(place_.node.gpus.at(static_cast<std::size_t>(member.gpu)).numa);
  Piece piece;
  piece.imports.resize(hosts.size());
  piece.host = alloc_host(bytes, std::move(hosts), Call::Kind::alloc);
  SymmetricMemory memory = next_memory(bytes);
  for (std::size_t rank = 0; rank < memory.addresses_.size(); ++rank)
    memory.addresses_[rank] = piece.host->address(static_cast<int>(rank));
  last_number_ = memory.number_;
  pieces_.emplace(memory.number_, std::move(piece));
  return memory;
}

SymmetricMemory SymmetricHeap::alloc_on_gpus(std::uint64_t bytes, SymmetricUse use) {
  ControlSegment& board = *place_.board;
  const int rank = place_.members.rank;
  const auto size = static_cast<std::size_t>(place_.members.size());

  Piece piece;
  piece.imports.resize(size);
  if (use == SymmetricUse::transfers || use == SymmetricUse::peers)
    piece.import_observer = place_.engine;
  const auto free_own = [&] {
    if (piece.own == 0) return;
    // Another rank may have come to the end of the call before it was told, and use the memory.
    if (board.aborted()) return lost_.push_back(piece.own);
    const CurrentContext current(*place_.driver, place_.context->get(), std::nothrow);
    POLYPATH_WARN(*place_.driver, mem_free(piece.own));
  };
  // Stage 2 only after a failure: all ranks that opened a memory have closed it before it is freed.
  const auto gather = [&](std::uint32_t stage, const auto& local) {
    std::vector<std::decay_t<decltype(local)>> all(size);
    board.gather(rank, {Call::Kind::alloc, stage, bytes}, std::as_bytes(std::span(&local, 1)),
                 std::as_writable_bytes(std::span(all)), *place_.limit);
    return all;
  };
  try {
    const auto offers = gather(0, offer(piece, bytes, use));
    throw_first_error(offers, fmt::format("alloc of {} bytes", bytes));

    SymmetricMemory memory = next_memory(bytes);
    memory.is_shared_ = place_.placement == SymmetricPlacement::gpus;
    View view;
    view.problem.catch_from([&] {
      if (use == SymmetricUse::local)
        memory.addresses_[static_cast<std::size_t>(rank)] = piece.own;
      else
        open(piece, memory, offers);
      if (size <= kMaxViewers) std::ranges::copy(memory.addresses_, view.addresses.begin());
    });
    try {
      const std::vector<View> views = gather(1, view);
      throw_first_error(views, fmt::format("alloc of {} bytes", bytes));
      if (memory.is_shared_ && use != SymmetricUse::local && size <= kMaxViewers) {
        piece.bytes = bytes;
        for (const View& peer : views)
          piece.peer_addresses.push_back(peer.addresses[static_cast<std::size_t>(rank)]);
      }
    } catch (const CommunicatorError&) {
      close(piece);
      if (!board.aborted()) gather(2, Opened{});
      throw;
    }
    last_number_ = memory.number_;
    pieces_.emplace(memory.number_, std::move(piece));
    return memory;
  } catch (...) {
    free_own();
    throw;
  }
}

void SymmetricHeap::require_range(const SymmetricMemory& memory, std::uint64_t offset,
                                  std::uint64_t bytes, const char* what) const {
  if (!memory) throw InvalidArgument(fmt::format("{} is null", what));
  if (memory.owner_ != place_.board->id() || !pieces_.contains(memory.number_))
    throw InvalidArgument(fmt::format("{} is not memory of this communicator, or was freed", what));
  if (offset > memory.bytes_ || bytes > memory.bytes_ - offset)
    throw InvalidArgument(fmt::format("{}: {} bytes at offset {} are past the end of {} bytes",
                                      what, bytes, offset, memory.bytes_));
}

std::optional<std::vector<CUdeviceptr>> SymmetricHeap::peer_addresses(CUdeviceptr address,
                                                                      std::uint64_t bytes) const {
  for (const auto& [number, piece] : pieces_) {
    if (piece.peer_addresses.empty() || address < piece.own) continue;
    const std::uint64_t offset = address - piece.own;
    if (offset > piece.bytes || bytes > piece.bytes - offset) continue;
    std::vector<CUdeviceptr> addresses = piece.peer_addresses;
    for (CUdeviceptr& peer : addresses) peer += offset;
    return addresses;
  }
  return std::nullopt;
}

void SymmetricHeap::free(const SymmetricMemory& memory) {
  require_range(memory, 0, 0, "memory");
  ControlSegment& board = *place_.board;
  board.require_usable();
  const auto it = pieces_.find(memory.number_);
  close(it->second);
  const std::array<std::byte, 1> none{};
  std::vector<std::byte> all(static_cast<std::size_t>(board.size()));
  board.gather(place_.members.rank, {Call::Kind::free, 0, memory.number_}, none, all,
               *place_.limit);
  const CurrentContext current(*place_.driver, place_.context->get());
  const CUdeviceptr own = it->second.own;
  pieces_.erase(it);
  if (own != 0) POLYPATH_CHECK(*place_.driver, mem_free(own));
}

std::function<void()> SymmetricHeap::release() {
  std::vector<CUdeviceptr> own = std::exchange(lost_, {});
  const auto hosts = std::make_shared<std::vector<std::shared_ptr<const SharedHostMemory>>>();
  for (auto& [number, piece] : pieces_) {
    close(piece);
    if (piece.own != 0) own.push_back(piece.own);
    if (piece.host != nullptr) hosts->push_back(std::move(piece.host));
  }
  pieces_.clear();
  if (const auto deferred = std::move(deferred_)) {
    Piece piece = deferred->release();
    close(piece);
    if (piece.own != 0) own.push_back(piece.own);
  }
  RelayMemory::Released of_relays;
  if (const auto relays = std::move(relays_)) of_relays = relays->release();
  return [driver = place_.driver, context = place_.context, own = std::move(own), hosts,
          of_relays = std::move(of_relays)] {
    const RelaxedCapture relaxed(*driver);  // it may run in the background
    for (const RelayMemory::Own& relay : of_relays.on_relays) free_on_relay(*driver, relay);
    const ContextInUse in_use(*context);
    hosts->clear();
    if (!in_use || (own.empty() && of_relays.pinned == nullptr)) return;
    const CurrentContext current(*driver, context->get(), std::nothrow);
    if (of_relays.pinned != nullptr) POLYPATH_WARN(*driver, mem_free_host(of_relays.pinned));
    for (const CUdeviceptr address : own) POLYPATH_WARN(*driver, mem_free(address));
  };
}

}  // namespace polypath
