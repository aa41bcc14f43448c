// What libpolypath_nccl.so adds to calls that stay with NCCL, on a communicator of one rank, whose
// calls are never taken. NCCL's own function and polypath's are called in turn, in rows, in one
// process; prints a JSON object a function: medians of the CPU time of a call, and of the pairs'
// differences.
//
//   build/release/bin/nccl_call_cost build/release/libpolypath_nccl.so .../libnccl.so.2
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace {

constexpr int kCalls = 2'000;  // of a row
constexpr std::size_t kRounds = 101;

/// One of the two libraries, and a communicator of its own.
class Library {
 public:
  explicit Library(const char* path) : handle_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    const int gpu = 0;
    require(find<int(void**, int, const int*)>("ncclCommInitAll")(&comm_, 1, &gpu),
            "ncclCommInitAll");
  }
  template <typename Function>
  [[nodiscard]] std::add_pointer_t<Function> find(const char* name) const {
    void* const function = dlsym(handle_, name);
    if (function == nullptr) throw std::runtime_error(std::string("there is no ") + name);
    return reinterpret_cast<std::add_pointer_t<Function>>(function);
  }
  [[nodiscard]] void* comm() const { return comm_; }
  static void require(int result, const char* call) {
    if (result != 0) throw std::runtime_error(fmt::format("{}: error {}", call, result));
  }

 private:
  void* handle_;
  void* comm_ = nullptr;
};

double median(std::array<double, kRounds>& values) {
  std::ranges::nth_element(values, values.begin() + kRounds / 2);
  return values[kRounds / 2];
}

template <typename Call>
double ns_of(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) call();
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
  return spent.count() / kCalls;
}

template <typename Native, typename With>
void print_row(const char* name, const Native& native, const With& under_polypath) {
  native();
  under_polypath();
  std::array<double, kRounds> natives{};
  std::array<double, kRounds> withs{};
  std::array<double, kRounds> more{};
  for (std::size_t round = 0; round < kRounds; ++round) {
    natives[round] = ns_of(native);
    withs[round] = ns_of(under_polypath);
    more[round] = withs[round] - natives[round];
  }
  fmt::print(
      "{{\"call\": \"{}\", \"native_ns\": {:.1f}, \"with_ns\": {:.1f}, \"more_ns\": {:.1f}}}\n",
      name, median(natives), median(withs), median(more));
}

void run(const char* polypath, const char* nccl) {
  ::setenv("POLYPATH_NCCL_LIBRARY", nccl, 1);
  const Library native(nccl);
  const Library under_polypath(polypath);
  const auto row = [&](const char* name, const auto& call_of) {
    print_row(name, call_of(native), call_of(under_polypath));
  };
  row("ncclCommCount", [](const Library& library) {
    return [call = library.find<int(const void*, int*)>("ncclCommCount"), comm = library.comm()] {
      int count = 0;
      Library::require(call(comm, &count), "ncclCommCount");
    };
  });
  row("ncclGroupStart and ncclGroupEnd", [](const Library& library) {
    return
        [start = library.find<int()>("ncclGroupStart"), end = library.find<int()>("ncclGroupEnd")] {
          Library::require(start(), "ncclGroupStart");
          Library::require(end(), "ncclGroupEnd");
        };
  });
  // A call without elements: nothing is launched.
  row("ncclAllReduce", [](const Library& library) {
    using AllReduce = int(const void*, void*, std::size_t, int, int, void*, void*);
    return [call = library.find<AllReduce>("ncclAllReduce"), comm = library.comm()] {
      constexpr int kFloat32 = 7;
      Library::require(call(nullptr, nullptr, 0, kFloat32, 0, comm, nullptr), "ncclAllReduce");
    };
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} LIBPOLYPATH_NCCL LIBNCCL\n", argv[0]);
    return 2;
  }
  try {
    run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
