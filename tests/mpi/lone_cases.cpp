#include "lone_cases.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "collective_row.hpp"

namespace polypath::test {
namespace {

/// The driver raises `signal` at this process's next kernel (ending_driver.cpp).
void signal_at_launch(int signal) {
  const char* const driver = std::getenv("POLYPATH_DRIVER_LIBRARY");
  void* const library = driver != nullptr ? dlopen(driver, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  require(library != nullptr, "the driver that ends this rank is not used");
  reinterpret_cast<void (*)(int)>(dlsym(library, "polypath_test_signal_at_launch"))(signal);
}

/// mpirun loses output that it has not passed on when it ends a program. So output goes to the file
/// POLYPATH_TEST_OUTPUT, which ranks append to.
void write_to_file() {
  const char* const path = std::getenv("POLYPATH_TEST_OUTPUT");
  require(path != nullptr, "POLYPATH_TEST_OUTPUT is not set");
  constexpr mode_t kReadable = 0644;
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kReadable);
  require(file >= 0, "POLYPATH_TEST_OUTPUT cannot be written");
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
}

/// The last of three ranks ends or stops in a collective that all agreed to, before its kernel:
/// those of the others wait for it. They print what MPI told them, and how long that took.
void ending(Calls& run, int signal) {
  write_to_file();
  Row row{Collective::allreduce, types()[0]};
  row.count = 5'000;
  run_row(run.gpu, MPI_COMM_WORLD, row);  // makes polypath's communicator
  const int rank = rank_in(MPI_COMM_WORLD);
  if (rank == size_of(MPI_COMM_WORLD) - 1) signal_at_launch(signal);
  const CUdeviceptr memory = run.gpu.allocate(1 << 16);
  const auto begin = std::chrono::steady_clock::now();
  const int code = MPI_Allreduce(MPI_IN_PLACE, reinterpret_cast<void*>(memory), 1 << 14, MPI_FLOAT,
                                 MPI_SUM, MPI_COMM_WORLD);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  const std::string line = fmt::format(
      "{{\"ended\": {{\"rank\": {}, \"error\": {}, \"seconds\": {:.2f}}}}}\n", rank,
      code == MPI_ERR_OTHER ? "\"MPI_ERR_OTHER\"" : std::to_string(code), taken.count());
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
  // mpirun ends all when one ends: not before both have said theirs. MPI_Finalize would wait.
  int other = 0;
  MPI_Sendrecv(&rank, 1, MPI_INT, 1 - rank, 0, &other, 1, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  _exit(3);
}

/// Another time on each rank and in each run, up to 3 ms.
void sleep_a_little() {
  static std::mt19937 random(static_cast<unsigned>(getpid()));
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
}

/// Word `i` of what `rank` gives to a large call.
std::uint64_t word_of(int rank, std::uint64_t i) {
  std::uint64_t x =
      (i + 1) * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(rank) * 0x2545f4914f6cdd1d;
  x ^= x >> 29;
  return x * 0xbf58476d1ce4e5b9;
}

/// Words [0, words) of device memory, in pieces: filled, or each given to `see`.
class LargeBuffer {
 public:
  LargeBuffer(const RankGpu& gpu, std::uint64_t words)
      : gpu_(gpu), words_(words), memory_(gpu.allocate(8 * words)) {}
  ~LargeBuffer() { gpu_.free(memory_); }
  LargeBuffer(const LargeBuffer&) = delete;
  LargeBuffer& operator=(const LargeBuffer&) = delete;
  [[nodiscard]] void* get() const { return reinterpret_cast<void*>(memory_); }

  template <typename Word>
  void fill(const Word& word) {
    each_piece([&](std::uint64_t first, std::span<std::uint64_t> piece) {
      for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = word(first + i);
      gpu_.write(memory_ + 8 * first, std::as_bytes(piece));
    });
  }
  template <typename Word>
  void compare(const Word& word) {
    each_piece([&](std::uint64_t first, std::span<std::uint64_t> piece) {
      gpu_.read(memory_ + 8 * first, std::as_writable_bytes(piece));
      for (std::size_t i = 0; i < piece.size(); ++i)
        if (piece[i] != word(first + i))
          throw std::runtime_error(fmt::format("word {} of {} is wrong", first + i, words_));
    });
  }

 private:
  template <typename Each>
  void each_piece(const Each& each) {
    std::vector<std::uint64_t> piece(std::size_t{1} << 22);
    for (std::uint64_t first = 0; first < words_; first += piece.size())
      each(first, std::span(piece).first(std::min<std::uint64_t>(piece.size(), words_ - first)));
  }
  const RankGpu& gpu_;
  std::uint64_t words_;
  CUdeviceptr memory_;
};

/// Ints on a GPU, or in host memory, with poison around what is theirs.
class Ints {
 public:
  Ints(const RankGpu* gpu, const std::vector<int>& inside) : gpu_(gpu), memory_(kAround, kPoison) {
    memory_.insert(memory_.end(), inside.begin(), inside.end());
    memory_.resize(memory_.size() + kAround, kPoison);
    if (gpu_ == nullptr) return;
    device_ = gpu_->allocate(memory_.size() * sizeof(int));
    gpu_->write(device_, std::as_bytes(std::span(memory_)));
  }
  ~Ints() {
    if (gpu_ != nullptr) gpu_->free(device_);
  }
  Ints(const Ints&) = delete;
  Ints& operator=(const Ints&) = delete;

  /// As many of poison.
  static std::vector<int> none(std::size_t count) { return std::vector<int>(count, kPoison); }

  int* get() {
    return (gpu_ != nullptr ? reinterpret_cast<int*>(device_) : memory_.data()) + kAround;
  }
  void require_is(std::vector<int> expected, const char* what) {
    if (gpu_ != nullptr) gpu_->read(device_, std::as_writable_bytes(std::span(memory_)));
    expected.insert(expected.begin(), kAround, kPoison);
    expected.resize(expected.size() + kAround, kPoison);
    require(memory_ == expected, what);
  }

 private:
  static constexpr std::size_t kAround = 16;
  static constexpr int kPoison = static_cast<int>(0xA5A5A5A5);
  const RankGpu* gpu_;
  std::vector<int> memory_;
  CUdeviceptr device_ = 0;
};

/// All collectives between the even ranks and the odd ones, in memory of the GPU, or of the host.
void between_groups(Calls& run, const RankGpu* gpu) {
  const int rank = rank_in(MPI_COMM_WORLD);
  const int side = rank % 2;
  MPI_Comm group = MPI_COMM_NULL;
  MPI_Comm both = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, side, rank, &group);
  MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, 1 - side, 7, &both);
  std::vector<int> remote_ranks;  // ranks of the world
  for (int other = 1 - side; other < size_of(MPI_COMM_WORLD); other += 2)
    remote_ranks.push_back(other);
  const auto value = [](int source, int i) {
    return static_cast<int>(word_of(source, static_cast<std::uint64_t>(i)) >> 33);
  };
  const int own = rank_in(group);
  const int ours = size_of(group);
  const auto others = static_cast<int>(remote_ranks.size());
  const int all = 4 * ours * others;
  std::vector<int> sent, sums, gathered, exchanged, broadcast;
  for (int i = 0; i < all; ++i) {
    sent.push_back(value(rank, i));
    unsigned sum = 0;
    for (const int other : remote_ranks) sum += static_cast<unsigned>(value(other, i));
    sums.push_back(static_cast<int>(sum));
  }
  for (const int other : remote_ranks)
    for (int i = 0; i < 4; ++i) {
      gathered.push_back(value(other, i));
      exchanged.push_back(value(other, 4 * own + i));
    }
  // Calls by what `name` says, and compares.
  const auto call = [&](const char* name, const std::vector<int>& expected, const auto& make) {
    Ints send(gpu, sent);
    Ints recv(gpu, Ints::none(expected.size()));
    ++run.calls[name];
    require(make(send.get(), recv.get()) == MPI_SUCCESS, name);
    recv.require_is(expected, name);
    send.require_is(sent, name);
  };
  call("MPI_Allreduce", sums, [&](const int* send, int* recv) {
    return MPI_Allreduce(send, recv, all, MPI_INT, MPI_SUM, both);
  });
  call("MPI_Allgather", gathered, [&](const int* send, int* recv) {
    return MPI_Allgather(send, 4, MPI_INT, recv, 4, MPI_INT, both);
  });
  call("MPI_Alltoall", exchanged, [&](const int* send, int* recv) {
    return MPI_Alltoall(send, 4, MPI_INT, recv, 4, MPI_INT, both);
  });
  const int part = all / ours;
  const auto first = sums.begin() + static_cast<std::ptrdiff_t>(part) * own;
  call("MPI_Reduce_scatter_block", {first, first + part}, [&](const int* send, int* recv) {
    return MPI_Reduce_scatter_block(send, recv, part, MPI_INT, MPI_SUM, both);
  });
  // The last of the even ranks gives to all odd ones, which give nothing.
  const int root = (ours + others - 1) / 2 * 2;
  for (int i = 0; i < 4; ++i) broadcast.push_back(value(root, i));
  const int place = side == 1 ? root / 2 : rank == root ? MPI_ROOT : MPI_PROC_NULL;
  call("MPI_Bcast", side == 1 ? broadcast : Ints::none(4), [&](int* send, int* recv) {
    return MPI_Bcast(rank == root ? send : recv, 4, MPI_INT, place, both);
  });
  call("MPI_Allgather", side == 1 ? gathered : std::vector<int>{}, [&](const int* send, int* recv) {
    const int to = side == 0 ? 4 : 0;
    return MPI_Allgather(send, to, MPI_INT, recv, 4 - to, MPI_INT, both);
  });
  MPI_Comm_free(&both);
  MPI_Comm_free(&group);
}

}  // namespace

void killed(Calls& run) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  ending(run, SIGKILL);
}

void stopped(Calls& run) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  ending(run, SIGSTOP);
}

void stopped_fatally(Calls& run) { ending(run, SIGSTOP); }

void intercommunicator(Calls& run) {
  between_groups(run, nullptr);
  between_groups(run, &run.gpu);
}

void freed_in_any_order(Calls& run) {
  const int rank = rank_in(MPI_COMM_WORLD);
  const int size = size_of(MPI_COMM_WORLD);
  unsigned seed = 0;
  const auto call = [&](MPI_Comm comm) {
    Row row{Collective::allreduce, types()[0]};
    row.count = 1000;
    row.seed = ++seed;
    run_row(run.gpu, comm, row);
    ++run.calls["MPI_Allreduce"];
  };
  for (int time = 0; time < 3; ++time) {
    std::vector<MPI_Comm> all(static_cast<std::size_t>(size));
    for (MPI_Comm& comm : all) {
      MPI_Comm_dup(MPI_COMM_WORLD, &comm);
      call(comm);
    }
    // Each begins with another one, and ranks free their next when all have freed one.
    for (int i = 0; i < size; ++i) {
      sleep_a_little();
      MPI_Comm_free(&all[static_cast<std::size_t>((rank + i) % size)]);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    call(MPI_COMM_WORLD);
  }
}

void paused(Calls& run) {
  const int rank = rank_in(MPI_COMM_WORLD);
  Row row{Collective::allreduce, types()[0]};
  row.count = 5'000;
  for (int i = 0; i < 2; ++i) {
    if (i == 1 && rank == size_of(MPI_COMM_WORLD) - 1) {
      const char* const seconds = std::getenv("POLYPATH_TEST_PAUSE");
      require(seconds != nullptr, "POLYPATH_TEST_PAUSE");
      signal_at_launch(SIGSTOP);
      // Once it has stopped, which may take a while.
      const std::string later = fmt::format(
          "env -u LD_PRELOAD sh -c 'until grep -q \"^State:.T\" /proc/{0}/status; do sleep 0.05; "
          "[ -e /proc/{0} ] || exit; done; sleep {1}; kill -CONT {0}' &",
          getpid(), seconds);
      require(std::system(later.c_str()) == 0, "the shell");
    }
    run_row(run.gpu, MPI_COMM_WORLD, row);
    ++run.calls["MPI_Allreduce"];
  }
}

void unusual_types(Calls& run) {
  const int rank = rank_in(MPI_COMM_WORLD);
  const int size = size_of(MPI_COMM_WORLD);
  const auto value = [](int source, int i) {
    return static_cast<int>(word_of(source, static_cast<std::uint64_t>(i)));
  };
  std::vector<int> all(static_cast<std::size_t>(4 * size), -1);
  std::vector<int> expected;
  for (int source = 0; source < size; ++source)
    for (int i = 0; i < 4; ++i) expected.push_back(value(source, i));
  std::copy_n(expected.begin() + 4 * rank, 4, all.begin() + 4 * rank);
  MPI_Allgather(MPI_IN_PLACE, 7, MPI_Datatype{}, all.data(), 4, MPI_INT, MPI_COMM_WORLD);
  ++run.calls["MPI_Allgather"];
  require(all == expected, "MPI_Allgather in place, without a type");

  constexpr int kCount = 1000;
  MPI_Datatype backwards = MPI_DATATYPE_NULL;
  MPI_Type_create_resized(MPI_INT, 0, -static_cast<MPI_Aint>(sizeof(int)), &backwards);
  MPI_Type_commit(&backwards);
  const CUdeviceptr memory = run.gpu.allocate(kCount * sizeof(int));
  std::vector<int> sent, got(kCount, -1);
  for (int i = 0; i < kCount; ++i) sent.push_back(value(1, i));
  run.gpu.write(memory, std::as_bytes(std::span(rank == 1 ? sent : got)));
  auto* const last = reinterpret_cast<int*>(memory) + kCount - 1;
  MPI_Bcast(last, kCount, backwards, 1, MPI_COMM_WORLD);
  ++run.calls["MPI_Bcast"];
  run.gpu.read(memory, std::as_writable_bytes(std::span(got)));
  require(got == sent, "MPI_Bcast of what lies backwards");
  run.gpu.free(memory);
  MPI_Type_free(&backwards);
}

void huge(Calls& run) {
  const int rank = rank_in(MPI_COMM_WORLD);
  const std::uint64_t words = (std::uint64_t{1} << 28) + 6;  // 2 GiB and 48 bytes
  LargeBuffer buffer(run.gpu, words);
  const auto of_root = [](std::uint64_t i) { return word_of(1, i); };
  const auto sum = [size = size_of(MPI_COMM_WORLD)](std::uint64_t i) {
    std::uint64_t all = 0;
    for (int other = 0; other < size; ++other) all += word_of(other, i);
    return all;
  };
  const auto own = [rank](std::uint64_t i) { return word_of(rank, i); };

  buffer.fill([&](std::uint64_t i) { return rank == 1 ? of_root(i) : 0xa5a5a5a5a5a5a5a5; });
  MPI_Bcast(buffer.get(), static_cast<int>(words / 2), MPI_LONG_DOUBLE, 1, MPI_COMM_WORLD);
  buffer.compare(of_root);
  ++run.calls["MPI_Bcast"];

  buffer.fill(own);
  MPI_Allreduce(MPI_IN_PLACE, buffer.get(), static_cast<int>(words), MPI_UINT64_T, MPI_SUM,
                MPI_COMM_WORLD);
  buffer.compare(sum);
  ++run.calls["MPI_Allreduce"];
#if MPI_VERSION >= 4
  buffer.fill([&](std::uint64_t i) { return rank == 1 ? of_root(i) : 0xa5a5a5a5a5a5a5a5; });
  MPI_Bcast_c(buffer.get(), static_cast<MPI_Count>(8 * words), MPI_BYTE, 1, MPI_COMM_WORLD);
  buffer.compare(of_root);
  ++run.calls["MPI_Bcast"];
  // Bytes of 2 bits, whose sums do not carry.
  constexpr std::uint64_t kSmall = 0x0303030303030303;
  buffer.fill([&](std::uint64_t i) { return own(i) & kSmall; });
  MPI_Allreduce_c(MPI_IN_PLACE, buffer.get(), static_cast<MPI_Count>(8 * words), MPI_UINT8_T,
                  MPI_SUM, MPI_COMM_WORLD);
  buffer.compare([&](std::uint64_t i) {
    std::uint64_t all = 0;
    for (int other = 0; other < size_of(MPI_COMM_WORLD); ++other) all += word_of(other, i) & kSmall;
    return all;
  });
  ++run.calls["MPI_Allreduce"];
#endif
}

}  // namespace polypath::test
