#include <list>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "sections.hpp"

namespace polypath::facts {
namespace {

/// A copy of one GPU to or from its host memory, on a stream of its own.
struct HostCopy {
  HostCopy(Workbench& bench, int on_gpu, bool in)
      : gpu(on_gpu),
        stream(bench.stream(gpu, in ? 0 : 1)),
        src(bench.buffer(in ? bench.host_of(gpu) : MemoryId::gpu(gpu), bench.bytes() / 4)),
        dst(bench.buffer(in ? MemoryId::gpu(gpu) : bench.host_of(gpu), bench.bytes() / 4)) {
    src.fill(kSeed);
    dst.poison();
  }

  int gpu;
  CUstream stream;
  TestBuffer src, dst;
};

}  // namespace

void host_links(Workbench& bench, Report& report) {
  std::list<HostCopy> in;
  std::list<HostCopy> out;
  for (int gpu = 0; gpu < bench.gpus(); ++gpu) {
    in.emplace_back(bench, gpu, true);
    out.emplace_back(bench, gpu, false);
  }
  // Shows the copies of GPUs [first, end).
  const auto show = [&](const std::string& who, const std::string& direction, int first, int end) {
    std::vector<const HostCopy*> copies;
    std::vector<CUstream> streams;
    for (const auto* list : {&in, &out})
      for (const HostCopy& copy : *list)
        if (copy.gpu >= first && copy.gpu < end && direction != (list == &in ? "d2h" : "h2d")) {
          copies.push_back(&copy);
          streams.push_back(copy.stream);
        }
    const auto issue = [&] {
      for (const HostCopy* copy : copies)
        bench.copy(copy->gpu, copy->dst.address(), copy->src.address(), copy->src.size(),
                   copy->stream);
    };
    report.figure(
        "host_links", who + " " + direction,
        rate_gbps(copies.front()->src.size() * copies.size(), bench.time(streams, issue).device_us),
        "GB/s");
  };
  const int gpus = bench.gpus();
  for (const char* direction : {"h2d", "d2h", "both"}) {
    for (int gpu = 0; gpu < gpus; ++gpu) show(fmt::format("gpu{}", gpu), direction, gpu, gpu + 1);
    if (gpus > 1) show("gpu0 and gpu1", direction, 0, 2);
    if (gpus > 2) show(fmt::format("all {} GPUs", gpus), direction, 0, gpus);
  }
  for (const auto* list : {&in, &out})
    for (const HostCopy& copy : *list)
      if (copy.dst.first_difference(kSeed))
        throw Error("wrong bytes in " + to_string(copy.dst.memory()));
}

}  // namespace polypath::facts
