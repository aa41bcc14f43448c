// The control functions of polypath_sim.h.
#include <bit>
#include <cstring>

#include "call.hpp"
#include "device_traits.hpp"
#include "polypath_sim.h"
#include "routing.hpp"

using namespace polypath::sim;

namespace {

/// The result of `body(driver)` under the lock; 0 when it fails.
template <typename Body>
auto ask(Body&& body) noexcept {
  decltype(body(std::declval<Driver&>())) result{};
  call([&](Driver& driver) { result = body(driver); });
  return result;
}

Counters::Moved moved(Driver& driver, const char* from, const char* to) {
  const auto link = driver.node.find_link(polypath::parse_memory(from), polypath::parse_memory(to));
  driver.devices().catch_up();
  return link ? driver.counters.links[static_cast<std::size_t>(*link)] : Counters::Moved{};
}

}  // namespace

double polypath_sim_clock_us() {
  return ask([](Driver& driver) { return driver.devices().clock_us(); });
}

int polypath_sim_has_whole_lines() {
  return ask([](Driver& driver) { return driver.mode.has_whole_lines ? 1 : 0; });
}

void polypath_sim_advance_us(double us) {
  call([us](Driver& driver) { driver.devices().pass(us); });
}

void polypath_sim_set_issuer(int number) {
  call([number](Driver& driver) { driver.devices().set_issuing(number); });
}

void polypath_sim_wait_turn() {
  call([](Driver& driver) { driver.devices().take_turn(); });
}

int polypath_sim_traffic_start(const char* from, const char* to, uint64_t block_bytes,
                               int queue_blocks, double on_us, double off_us) {
  return ask([=](Driver& driver) {
    const bool is_valid = from != nullptr && to != nullptr && block_bytes > 0 && queue_blocks > 0 &&
                          on_us >= 0 && off_us >= 0 && (on_us > 0) == (off_us > 0);
    require(is_valid, CUDA_ERROR_INVALID_VALUE);
    const polypath::BackgroundTraffic traffic{.from = polypath::parse_memory(from),
                                              .to = polypath::parse_memory(to),
                                              .block_bytes = block_bytes,
                                              .queue_blocks = queue_blocks,
                                              .on_us = on_us,
                                              .off_us = off_us};
    return driver.devices().start_traffic(traffic_flow(driver.node, traffic), false);
  });
}

void polypath_sim_traffic_stop(int id) {
  call([=](Driver& driver) { driver.devices().stop_traffic(id); });
}

uint64_t polypath_sim_traffic_blocks(int id) {
  return ask([=](Driver& driver) { return driver.devices().traffic_blocks(id); });
}

int polypath_sim_traffic_queued(int id) {
  return ask([=](Driver& driver) { return driver.devices().traffic_queued(id); });
}

uint64_t polypath_sim_link_bytes(const char* from, const char* to) {
  return ask([=](Driver& driver) { return moved(driver, from, to).bytes; });
}

uint64_t polypath_sim_link_copies(const char* from, const char* to) {
  return ask([=](Driver& driver) { return moved(driver, from, to).copies; });
}

uint64_t polypath_sim_copies() {
  return ask([](Driver& driver) { return driver.counters.copies; });
}

uint64_t polypath_sim_bounced_copies() {
  return ask([](Driver& driver) { return driver.counters.bounced; });
}

uint64_t polypath_sim_pageable_copies() {
  return ask([](Driver& driver) { return driver.counters.pageable; });
}

uint64_t polypath_sim_graphs_modified_in_flight() {
  return ask([](Driver& driver) { return driver.counters.graphs_disturbed; });
}

uint64_t polypath_sim_stale_graph_launches() {
  return ask([](Driver& driver) { return driver.counters.stale_graph_launches; });
}

uint64_t polypath_sim_contexts_at_once() {
  return ask(
      [](Driver& driver) { return static_cast<std::uint64_t>(driver.counters.contexts_at_once); });
}

void polypath_sim_hold_contexts(int count) {
  call([count](Driver& driver) { driver.context_lifecycle().hold_creations(count); });
}

void polypath_sim_fail_context(int gpu, int result) {
  call([=](Driver& driver) {
    const CUcontext context = driver.context_lifecycle().primary(check_device(driver.node, gpu));
    driver.contexts().get(context).fault = static_cast<CUresult>(result);
  });
}

void polypath_sim_reset_counters() {
  call([](Driver& driver) {
    driver.devices().catch_up();
    driver.counters = {};
    driver.counters.links.resize(driver.node.links.size());
  });
}

uint64_t polypath_sim_live_contexts() {
  return ask([](Driver& driver) { return driver.contexts().live(); });
}

uint64_t polypath_sim_live_streams() {
  return ask([](Driver& driver) { return driver.streams().live(); });
}

uint64_t polypath_sim_live_events() {
  return ask([](Driver& driver) { return driver.events().live(); });
}

uint64_t polypath_sim_live_allocations() {
  return ask([](Driver& driver) { return driver.memory().live(); });
}

uint64_t polypath_sim_live_graphs() {
  return ask([](Driver& driver) {
    return driver.graphs().live() - driver.captures().size();  // a capture's graph has no owner yet
  });
}

uint64_t polypath_sim_live_graph_execs() {
  return ask([](Driver& driver) { return driver.graph_execs().live(); });
}

uint64_t polypath_sim_graph_nodes(void* graph) {
  return ask([=](Driver& driver) {
    return driver.graphs().get(static_cast<CUgraph>(graph)).nodes.size();
  });
}

int polypath_sim_peek(uint64_t address, void* bytes, uint64_t count) {
  const CUresult result = call([=](Driver& driver) {
    const AllocationPtr allocation = driver.memory().find(address);
    require(allocation && count <= allocation->base + allocation->bytes - address,
            CUDA_ERROR_INVALID_VALUE);
    std::memcpy(bytes, allocation->read(address, count), count);
  });
  return result == CUDA_SUCCESS ? 0 : -1;
}
