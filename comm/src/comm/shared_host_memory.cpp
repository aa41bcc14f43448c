#include "comm/shared_host_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "comm/rank_error.hpp"
#include "driver/check.hpp"
#include "exec/numa_binding.hpp"

namespace polypath {
namespace {

/// Parts are whole pages; larger ones whole large pages.
constexpr std::uint64_t kPartPage = 2 << 20;
constexpr std::uint64_t kSmallPage = 64 << 10;

std::uint64_t whole_pages(std::uint64_t bytes) {
  const std::uint64_t page = bytes < kPartPage ? kSmallPage : kPartPage;
  return (bytes + page - 1) / page * page;
}

/// Where the others find the file.
struct FileOffer {
  ProcessId maker;
  std::int32_t file = -1;
  RankError problem;
};

}  // namespace

struct SharedHostMemory::Key {
  ControlSegmentId board;
  std::uint64_t number = 0;

  friend auto operator<=>(const Key&, const Key&) = default;
};

/// What this process has mapped.
struct SharedHostMemory::Known {
  std::mutex mutex;
  std::map<Key, std::weak_ptr<SharedHostMemory>> all;
};

class SharedHostMemory::File {
 public:
  File() = default;
  File(int number, const char* what) : number_(number) {
    if (number_ < 0)
      throw Error(fmt::format("{}: {}", what, std::generic_category().message(errno)));
  }
  ~File() {
    if (number_ >= 0) ::close(number_);
  }
  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_ = -1;
};

SharedHostMemory::Known& SharedHostMemory::known() {
  static Known* const all = new Known;  // for memory that ends with the process
  return *all;
}

std::shared_ptr<SharedHostMemory> SharedHostMemory::find(const Key& key) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  const auto it = all.all.find(key);
  return it == all.all.end() ? nullptr : it->second.lock();
}

SharedHostMemory::SharedHostMemory(std::shared_ptr<const CudaDriver> driver, const File& file,
                                   std::size_t parts, std::uint64_t bytes)
    : driver_(std::move(driver)), bytes_(bytes), part_bytes_(whole_pages(bytes)), parts_(parts) {
  void* const memory =
      ::mmap(nullptr, part_bytes_ * parts, PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  if (memory == MAP_FAILED)
    throw Error(fmt::format("shared host memory cannot be mapped: {}",
                            std::generic_category().message(errno)));
  memory_ = memory;
  for (std::size_t i = 0; i < parts; ++i)
    parts_[i].address = reinterpret_cast<CUdeviceptr>(memory) + i * part_bytes_;
}

SharedHostMemory::~SharedHostMemory() {
  bool is_free = true;
  for (const Part& part : parts_) {
    if (part.context == nullptr) continue;
    const CurrentContext current(*driver_, part.context->get(), std::nothrow);
    const CUresult result = driver_->mem_host_unregister(reinterpret_cast<void*>(part.address));
    if (result == CUDA_SUCCESS) continue;
    warn_driver_error(*driver_, result, "freeing shared host memory");
    is_free = false;  // the driver may still use the pages
  }
  if (is_free) ::munmap(memory_, part_bytes_ * parts_.size());
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.all, [](const auto& entry) { return entry.second.expired(); });
}

void SharedHostMemory::register_parts(const Place& place) {
  const auto is_near = [&](const Member& member, int host) {
    return member.here && place.node.gpus.at(static_cast<std::size_t>(member.gpu)).numa == host;
  };
  const CurrentContext current(*driver_, place.context->get());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const auto& all = place.members.all;
    const auto near = std::ranges::find_if(
        all, [&](const auto& entry) { return is_near(entry, place.hosts[i]); });
    const auto who = near != all.end() ? near : std::ranges::find(all, true, &Member::here);
    if (who - all.begin() != place.members.rank) continue;
    POLYPATH_CHECK(*driver_,
                   mem_host_register(reinterpret_cast<void*>(parts_[i].address), part_bytes_,
                                     CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    parts_[i].context = place.context;
  }
}

std::shared_ptr<const SharedHostMemory> SharedHostMemory::make(const Place& place,
                                                               std::uint64_t bytes) {
  if (bytes == 0) throw InvalidArgument("shared host memory: bytes is 0");
  const std::size_t parts = place.hosts.size();
  const int rank = place.members.rank;
  const std::string what = fmt::format("shared host memory of {} bytes", bytes);
  const auto gather = [&](std::uint32_t stage, const auto& local) {
    std::vector<std::decay_t<decltype(local)>> all(place.members.all.size());
    place.board->gather(rank, {place.call, stage, bytes}, std::as_bytes(std::span(&local, 1)),
                        std::as_writable_bytes(std::span(all)), place.limit);
    throw_first_error(all, what);
    return all;
  };

  FileOffer offer;
  File file;
  if (rank == 0) {
    offer.problem.catch_from([&] {
      file = File(::memfd_create("polypath-host", MFD_CLOEXEC), "memfd_create");
      if (::ftruncate(file.number(), static_cast<off_t>(whole_pages(bytes) * parts)) != 0)
        throw Error(fmt::format("ftruncate: {}", std::generic_category().message(errno)));
      offer.maker = this_process();
      offer.file = file.number();
    });
  }
  const FileOffer first = gather(0, offer).front();

  // One process touches pages before they are registered, in the NUMA domain of their part.
  const auto& all = place.members.all;
  const bool is_first = std::ranges::find(all, true, &Member::here) - all.begin() == rank;
  const Key key{place.board->id(), place.number};
  std::shared_ptr<SharedHostMemory> memory;
  Opened mapped;
  if (is_first)
    mapped.problem.catch_from([&] {
      if (rank != 0) {
        const std::string path = fmt::format("/proc/{}/fd/{}", first.maker.pid, first.file);
        file = File(::open(path.c_str(), O_RDWR | O_CLOEXEC), path.c_str());
      }
      memory.reset(new SharedHostMemory(place.driver, file, parts, bytes));
      for (std::size_t part = 0; rank == 0 && part < parts; ++part) {
        const int host = place.hosts[part];
        const NumaBinding near(place.node.hosts.at(static_cast<std::size_t>(host)).numa);
        const std::uint64_t size = memory->part_bytes_;
        // Without the faults of touching them; a lack of memory is an error, not a signal. Signals
        // of the program interrupt it, and what is made by then stays.
        int status = 0;
        do {
          status = ::fallocate(file.number(), 0, static_cast<off_t>(part * size),
                               static_cast<off_t>(size));
        } while (status != 0 && errno == EINTR);
        if (status != 0)
          throw Error(fmt::format("fallocate: {}", std::generic_category().message(errno)));
      }
      Known& others = known();
      const std::lock_guard lock(others.mutex);
      others.all[key] = memory;
    });
  gather(1, mapped);

  Opened registered;
  registered.problem.catch_from([&] {
    if (memory == nullptr) memory = find(key);
    if (memory == nullptr) throw Error("another rank of this process has let go of it");
    memory->register_parts(place);
  });
  gather(2, registered);
  return memory;
}

}  // namespace polypath
