// The process after Peer (peer.hpp): one command a line, one line of answer.
#include <bit>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include "pattern.hpp"
#include "peer.hpp"

namespace polypath::sim::test {
namespace {

void check(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  throw std::runtime_error(name);
}

CUdeviceptr device(const void* address) { return std::bit_cast<CUdeviceptr>(address); }

void use(int gpu) {
  CUcontext context = nullptr;
  check(cuDevicePrimaryCtxRetain(&context, gpu));
  check(cuCtxSetCurrent(context));
}

std::vector<std::uint8_t> read(CUdeviceptr address, std::size_t bytes) {
  std::vector<std::uint8_t> contents(bytes, 0x5A);
  check(cuMemcpy(device(contents.data()), address, bytes));
  return contents;
}

class Commands {
 public:
  std::string run(std::istringstream line) {
    std::string command;
    line >> command;
    if (command == "allocate") return allocate(line);
    if (command == "holds") return holds(line);
    if (command == "exchange") return exchange(line);
    if (command != "free") throw std::runtime_error("unknown command");
    check(cuMemFree(memory_));
    return "ok";
  }

 private:
  std::string allocate(std::istringstream& line) {
    int gpu = 0;
    int seed = 0;
    line >> gpu >> bytes_ >> seed;
    use(gpu);
    check(cuMemAlloc(&memory_, bytes_));
    const auto values = pattern(bytes_, static_cast<std::uint8_t>(seed));
    check(cuMemcpy(memory_, device(values.data()), bytes_));
    check(cuStreamSynchronize(nullptr));  // it may land after the call
    CUipcMemHandle handle{};
    check(cuIpcGetMemHandle(&handle, memory_));
    return to_text(handle);
  }

  std::string holds(std::istringstream& line) const {
    int seed = 0;
    line >> seed;
    return read(memory_, bytes_) == pattern(bytes_, static_cast<std::uint8_t>(seed)) ? "yes" : "no";
  }

  static std::string exchange(std::istringstream& line) {
    std::string handle;
    int gpu = 0;
    std::size_t bytes = 0;
    int expected = 0;
    int seed = 0;
    line >> handle >> gpu >> bytes >> expected >> seed;
    use(gpu);
    CUdeviceptr imported = 0;
    check(cuIpcOpenMemHandle(&imported, to_handle(handle), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (read(imported, bytes) != pattern(bytes, static_cast<std::uint8_t>(expected)))
      return "other bytes";
    const auto values = pattern(bytes, static_cast<std::uint8_t>(seed));
    check(cuMemcpy(imported, device(values.data()), bytes));
    check(cuIpcCloseMemHandle(imported));
    return "ok";
  }

  CUdeviceptr memory_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace
}  // namespace polypath::sim::test

int main() {
  cuInit(0);
  polypath::sim::test::Commands commands;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << commands.run(std::istringstream(line)) << std::endl;
    } catch (const std::exception& error) {
      std::cout << error.what() << std::endl;
    }
  }
}
