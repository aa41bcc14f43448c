// Kernels that communicate over a backend, on GPUs: one rank, that is built with the backend's
// device header (device_row.cuh) and started alone or by a launcher. All three launch modes, every
// byte compared; rows of calls in all groups. The exit code is 1 when something is wrong.
//
//   torchrun --no-python --nproc-per-node N build/release/bin/uniconn_device_gpushmem [ROWS]
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "device_row.cuh"
#include "device_row_rank.hpp"

namespace polypath::test {
namespace {

using Rank = SuiteRank<DeviceBackend>;

/// PureHost, in a program with device code: the library is the same.
void send_by_host(Rank& self) {
  const int next = (self.rank() + 1) % self.size();
  const int last = (self.rank() + self.size() - 1) % self.size();
  constexpr std::size_t kBytes = 100'000;
  Buffer<DeviceBackend> source(self.gpu, kBytes);
  Buffer<DeviceBackend> inbox(self.gpu, kBytes);
  Buffer<DeviceBackend> words(self.gpu, 8);
  words.put(0, Bytes(8));
  source.put(0, self.content(self.rank(), 1, kBytes));
  self.comm.Barrier(self.gpu.stream);
  uc::Coordinator<DeviceBackend> step(self.gpu.stream);
  auto* const word = words.get<std::uint64_t>();
  step.CommStart();
  step.Post(source.get(), inbox.get(), kBytes, word, 1, next, &self.comm);
  step.Acknowledge(inbox.get(), kBytes, word, 1, last, &self.comm);
  step.CommEnd();
  step.WaitComm();
  inbox.note(0, self.content(last, 1, kBytes));
  inbox.expect_image("PureHost");
}

void run(int rows) {
  uc::Environment<DeviceBackend> env;
  env.SetDevice(env.NodeRank());
  const Gpu gpu;
  uc::Communicator<DeviceBackend> comm;
  Rank self{env, comm, gpu};
  send_by_host(self);
  void* const on_device = comm.toDevice();
  send_by_kernels(self, &uniconn_device_row);
  DeviceRowOptions options;
  options.ranks = self.size();
  options.has_all_sums = false;
  options.sums_in_any_order = true;
  options.tells = false;
  DeviceRandom random(7);
  std::size_t calls = 0;
  for (int i = 0; i < rows; ++i) {
    options.most_bytes = i % 4 == 3 ? 300'000 : 16 * 1024;
    const DeviceRowCase row = make_device_row(random, options);
    calls += row.calls[0].size();
    make_row(row, gpu, &uniconn_device_row, comm, on_device);
  }
  if (self.rank() == 0)
    std::printf(
        "%s, %d ranks: PureHost, PartialDevice, and %zu calls in %d rows of PureDevice: ok\n",
        env.BackendName().c_str(), self.size(), calls, rows);
}

}  // namespace
}  // namespace polypath::test

int main(int argc, char** argv) {
  try {
    polypath::test::run(argc > 1 ? std::atoi(argv[1]) : 40);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
