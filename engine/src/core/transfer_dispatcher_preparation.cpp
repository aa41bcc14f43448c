// Which routes the dispatcher has prepared, and when.
//
//   request_routes(), prepare_now()  the plan of a transfer that is issued
//   prepare_later()                  a plan that another thread still computes
//   prepare_for()                    memory of another process that was opened
//   prepare()                        what the program asks for, on its own thread
#include <algorithm>
#include <cstddef>
#include <map>

#include "base/log.hpp"
#include "core/transfer_dispatcher.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {

bool TransferDispatcher::request_routes(const Plan& plan,
                                        const std::vector<SplittableTransfer>& group) {
  bool waits = false;
  try {
    for (std::size_t t = 0; t < group.size(); ++t) {
      for (const RouteShare& share : plan.transfers[t].routes) {
        if (!share.route.staged()) continue;
        const AccessState reached = reach(share.route, group[t], true, 0);
        if (reached == AccessState::denied) continue;
        waits = reached != AccessState::yes || waits;
        if (resources_.ready(share.route)) continue;
        preparer_.request(share.route, 1);
        waits = true;
      }
    }
  } catch (const DriverError& error) {
    log_info("routes are not waited for: {}", error.what());
    return false;
  }
  return waits;
}

void TransferDispatcher::prepare_now(const Plan& plan,
                                     const std::vector<SplittableTransfer>& group) {
  // After a failure nothing was issued: the transfer goes without what is not ready.
  if (request_routes(plan, group)) preparer_.wait();
}

void TransferDispatcher::prepare_later(const std::vector<SplittableTransfer>& group) {
  if (prepares_later_.exchange(true)) return;
  const bool is_added = planning_.add([this, group] {
    prepares_later_ = false;
    std::vector<Request> requests;
    for (const SplittableTransfer& transfer : group) requests.push_back(transfer.request);
    const auto prepared = planner_.plan(requests, 0);
    for (std::size_t t = 0; t < group.size(); ++t)
      if (!prepared->plan.transfers[t].native()) note_import(group[t]);
    const RelaxedCapture relaxed(driver());
    request_routes(prepared->plan, group);
  });
  if (!is_added) prepares_later_ = false;
}

void TransferDispatcher::prepare_for(const std::shared_ptr<ImportedMemory>& memory, int gpu) {
  const MemoryId here = MemoryId::gpu(gpu);
  const MemoryId there = MemoryId::gpu(memory->holder());
  const auto consider = [&](MemoryId src, MemoryId dst, std::uint64_t largest) {
    if (largest == 0) return;
    const std::uint64_t bytes = std::min(largest, memory->bytes());
    planner_.plan_later({src, dst, bytes}, [=, this](const PreparedPlan& prepared) {
      for (const RouteShare& share : prepared.plan.transfers.front().routes) {
        if (!share.route.staged()) continue;
        if (!resources_.ready(share.route)) preparer_.request(share.route, 1);
        preparer_.request(memory, resources_.issuer(src == there ? share.route.legs.front()
                                                                 : share.route.legs.back()));
      }
    });
  };
  consider(there, here, largest_from_import_);
  consider(here, there, largest_to_import_);
}

void TransferDispatcher::prepare(const std::vector<Request>& requests) {
  std::map<MemoryId, int> rings;
  std::map<int, int> channels;
  std::vector<Route> routes;
  const auto together = planner_.widest(requests);
  planner_.plan(requests, 0);
  for (std::size_t t = 0; t < requests.size(); ++t) {
    const MemoryId src = requests[t].src;
    const MemoryId dst = requests[t].dst;
    for (const MemoryId end : {src, dst})
      if (end.is_gpu()) devices_.context_for_program(end.index);
    if (src.is_gpu() && dst.is_gpu()) {
      const auto link = node().find_link(src, dst);
      if (link && node().links[static_cast<std::size_t>(*link)].type != LinkType::bounce) {
        devices_.enable_peer_access(src.index, dst.index);
        devices_.enable_peer_access(dst.index, src.index);
      }
    }
    planner_.plan({&requests[t], 1}, 0);
    // Alone a transfer may take routes that the group leaves to others.
    std::vector<Route> new_routes = planner_.widest({requests[t]}).front();
    for (const Route& route : together[t])
      if (std::ranges::find(new_routes, route) == new_routes.end()) new_routes.push_back(route);
    for (const Route& route : new_routes) {
      if (!route.staged()) continue;
      ++rings[route.via];
      for (const int leg : route.legs) ++channels[leg];
      routes.push_back(route);
    }
  }
  for (const Route& route : routes) {
    int copies = rings[route.via];
    for (const int leg : route.legs) copies = std::max(copies, channels[leg]);
    try {
      resources_.prepare(route, copies);
    } catch (const StagingRefused& refused) {
      log_info("route {} is not used: {}", to_string(route), refused.what());
    }
  }
}

}  // namespace polypath
