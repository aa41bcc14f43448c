#include "functional_traffic.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>

#include "failure.hpp"

namespace polypath::sim {
namespace {

// How old what is known of other processes may be.
constexpr double kLookAgainUs = 1000;

}  // namespace

FunctionalTraffic::FunctionalTraffic(const std::string& machine, const std::string& node) {
  if (!machine.empty())
    prefix_ = fmt::format("polypath-traffic-{}-{}-{}:", ::getuid(), machine, node);
}

double FunctionalTraffic::now_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::micro>(now).count();
}

int FunctionalTraffic::start(const TrafficFlow& traffic, bool from_file) {
  const double now = now_us();
  Flow flow;
  flow.engine = traffic.engine;
  flow.queue_blocks = traffic.queue_blocks;
  flow.block_us = traffic.block_us;
  flow.on_us = traffic.on_us;
  flow.off_us = traffic.off_us;
  flow.start_us = from_file ? 0 : now;
  flow.begin_us = now + traffic.begin_us;
  flow.end_us = now + traffic.end_us;
  if (!from_file) flow.published = publish(flow);
  own_.push_back(std::move(flow));
  return static_cast<int>(own_.size());
}

void FunctionalTraffic::stop(int id) {
  if (id < 1 || static_cast<std::size_t>(id) > own_.size()) return;
  Flow& flow = own_[static_cast<std::size_t>(id) - 1];
  flow.end_us = std::min(flow.end_us, now_us());
  flow.published.reset();
}

std::uint64_t FunctionalTraffic::blocks(int id) const {
  if (id < 1 || static_cast<std::size_t>(id) > own_.size()) return 0;
  const Flow& flow = own_[static_cast<std::size_t>(id) - 1];
  const double us = std::max(0.0, std::min(now_us(), flow.end_us) - flow.begin_us);
  const double share = flow.off_us > 0 ? flow.on_us / (flow.on_us + flow.off_us) : 1;
  return static_cast<std::uint64_t>(us * share / flow.block_us);
}

int FunctionalTraffic::queued(int id) const {
  if (id < 1 || static_cast<std::size_t>(id) > own_.size()) return 0;
  const Flow& flow = own_[static_cast<std::size_t>(id) - 1];
  const double left_us = flow.served_us(now_us()) - now_us();
  return left_us <= 0 ? 0 : static_cast<int>(std::ceil(left_us / flow.block_us));
}

FunctionalTraffic::Wait FunctionalTraffic::wait(const FlowDemand& copy, double issue_us) {
  if (!prefix_.empty()) look_at_others(issue_us);
  Wait wait{issue_us, issue_us};
  for (const auto* flows : {&own_, &others_})
    for (const Flow& flow : *flows) {
      if (std::ranges::find(copy.resources, flow.engine) == copy.resources.end()) continue;
      const double served_us = flow.served_us(issue_us);
      if (served_us > wait.until_us)
        wait = {served_us - flow.queue_blocks * flow.block_us, served_us};
    }
  return wait;
}

/// When the last block has been copied that was queued before this time.
double FunctionalTraffic::Flow::served_us(double issue_us) const {
  const double at = std::min(issue_us, end_us);
  if (at < begin_us) return 0;
  double on_since = start_us;
  double on_until = at;
  if (off_us > 0) {
    const double period = on_us + off_us;
    on_since += std::floor((at - start_us) / period) * period;
    on_until = std::min(at, on_since + on_us);
  }
  on_since = std::max(on_since, begin_us);
  if (on_until < on_since) return 0;  // it began while it was off
  const double ended = std::floor((on_until - on_since) / block_us);
  return on_since + (ended + queue_blocks) * block_us;
}

/// An abstract socket whose name says all: it is gone when the process is, however it ends.
std::shared_ptr<void> FunctionalTraffic::publish(const Flow& flow) const {
  if (prefix_.empty()) return nullptr;
  const std::string name =
      fmt::format("{}{} {} {:.3f} {:.0f} {:.0f} {:.0f} {}", prefix_, flow.engine, flow.queue_blocks,
                  flow.block_us, flow.on_us, flow.off_us, flow.start_us, ::getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  require(name.size() < sizeof address.sun_path, CUDA_ERROR_INVALID_VALUE);
  name.copy(address.sun_path + 1, name.size());
  const int file = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  require(file >= 0, CUDA_ERROR_OUT_OF_MEMORY);
  std::shared_ptr<int> held(new int(file), [](const int* each) {
    ::close(*each);
    delete each;
  });
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  require(::bind(file, reinterpret_cast<const sockaddr*>(&address), size) == 0,
          CUDA_ERROR_OUT_OF_MEMORY);
  return held;
}

void FunctionalTraffic::look_at_others(double now_us) {
  if (now_us - looked_us_ < kLookAgainUs) return;
  looked_us_ = now_us;
  others_.clear();
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const std::size_t at = line.find("@" + prefix_);
    if (at == std::string::npos) continue;
    Flow flow;
    int pid = 0;
    const int read = std::sscanf(line.c_str() + at + 1 + prefix_.size(), "%d %d %lf %lf %lf %lf %d",
                                 &flow.engine, &flow.queue_blocks, &flow.block_us, &flow.on_us,
                                 &flow.off_us, &flow.start_us, &pid);
    if (read != 7 || pid == ::getpid() || !(flow.block_us > 0)) continue;
    flow.begin_us = flow.start_us;
    flow.end_us = std::numeric_limits<double>::infinity();
    others_.push_back(flow);
  }
}

}  // namespace polypath::sim
