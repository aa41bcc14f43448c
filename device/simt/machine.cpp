#include "simt/machine.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace polypath::simt {
namespace {

struct Killed {};  // unwinds the stack of a thread that ends before its time

// Looked up at each turn and call: without a call of the linker's in a library.
#define SIMT_TLS [[gnu::tls_model("initial-exec")]] thread_local
SIMT_TLS Thread* current_thread = nullptr;
SIMT_TLS Machine* current_machine = nullptr;

}  // namespace

// A fiber may go on in another thread of the program: where thread_local variables lie must be
// looked up anew at each call.
[[gnu::noinline]] Thread& Machine::me() {
  asm volatile("");
  if (current_thread == nullptr) throw std::logic_error("called by no thread of a kernel");
  return *current_thread;
}
[[gnu::noinline]] Machine& Machine::machine_of_me() {
  asm volatile("");
  return *current_machine;
}

Machine::Machine(const Options& options)
    : options_(options), random_(options.seed * 0x9E3779B97F4A7C15U + 1) {
  constexpr std::array<unsigned, 4> kArrivals{1, 4, 32, 512};
  arrivals_ = kArrivals[random() % kArrivals.size()];
  stores_overtake_ = chance(2);
}

Machine::~Machine() { kill("the machine ended"); }

// splitmix64
std::uint64_t Machine::random() {
  random_ += 0x9E3779B97F4A7C15U;
  std::uint64_t value = random_;
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9U;
  value = (value ^ value >> 27) * 0x94D049BB133111EBU;
  return value ^ value >> 31;
}

// ---- grids ----

void Machine::start(const Launch& launch, MemorySystem& outside,
                    std::function<void(const std::string& error)> ended) {
  auto grid = std::make_unique<Grid>();
  grid->kernel = launch.kernel;
  grid->device = launch.device;
  grid->threads = launch.threads;
  grid->blocks_of_device = launch.blocks_of_device;
  grid->begins_early = launch.begins_early;
  grid->shared_bytes = launch.shared_bytes;
  for (const std::vector<std::byte>& argument : launch.arguments) {
    const std::size_t place = grid->arguments.size();
    grid->argument_places.push_back(place);
    grid->arguments.resize(place + argument.size() / sizeof(std::max_align_t) + 1);
    std::ranges::copy(argument, reinterpret_cast<std::byte*>(&grid->arguments[place]));
  }
  grid->outside = &outside;
  grid->ended = std::move(ended);
  grid->blocks.resize(launch.blocks);
  grid->alive = launch.blocks;
  starting_.push_back(grid.get());
  grids_.push_back(std::move(grid));
  start_blocks();
}

void Machine::start_blocks() {
  for (auto next = starting_.begin(); next != starting_.end();) {
    Grid& grid = **next;
    unsigned& running = running_blocks_[grid.device];
    while (grid.started < grid.blocks.size() &&
           (grid.blocks_of_device == 0 || running < grid.blocks_of_device)) {
      ++running;
      start_block(grid);
    }
    next = grid.started == grid.blocks.size() ? starting_.erase(next) : std::next(next);
  }
}

void Machine::start_block(Grid& grid) {
  const std::size_t index = grid.started++;
  grid.blocks[index] = std::make_unique<Block>();
  Block& block = *grid.blocks[index];
  block.grid = &grid;
  block.index = static_cast<unsigned>(index);
  block.alive = grid.threads;
  block.threads.resize(grid.threads);
  block.warps.resize((grid.threads + 31) / 32);
  block.dynamic_shared.resize(grid.shared_bytes / sizeof(std::max_align_t) + 1);
  for (unsigned i = 0; i < grid.threads; ++i) {
    block.threads[i].block = &block;
    block.threads[i].index = i;
    block.threads[i].may_use_memory = !grid.begins_early;
    ready_.push_back(&block.threads[i]);
  }
}

void Machine::end_thread(Thread& thread) {
  thread.state = Thread::State::ended;
  const std::exception_ptr error = thread.fiber ? thread.fiber->error() : nullptr;
  thread.fiber.reset();
  thread.known.reset();
  thread.own.reset();
  Block& block = *thread.block;
  Grid& grid = *block.grid;
  if (--block.alive == 0) {
    --grid.alive;
    --running_blocks_[grid.device];
  }
  if (error && !thread.is_killed) {
    try {
      std::rethrow_exception(error);
    } catch (const Fault& fault) {
      fail(grid, fault.what);
    } catch (const std::exception& failure) {
      fail(grid, failure.what());
    } catch (const Killed&) {
    }
    return;
  }
  if (block.alive > 0 || thread.is_killed) return;
  end_if_done(grid);
  start_blocks();
}

void Machine::end_if_done(Grid& grid) {
  if (grid.alive > 0 || grid.outstanding > 0 || !grid.error.empty()) return;
  const auto it = std::ranges::find(grids_, &grid, &std::unique_ptr<Grid>::get);
  const std::unique_ptr<Grid> ended = std::move(*it);
  grids_.erase(it);
  ended->ended({});
}

void Machine::fail(Grid& grid, const std::string& error) {
  if (!grid.error.empty()) return;
  grid.error = grid.kernel->name + ": " + (error.empty() ? "failed" : error);
  std::erase(starting_, &grid);
  for (const std::unique_ptr<Block>& block : grid.blocks) {
    if (!block) continue;
    for (const StorePtr& store : block->under_way.all()) {  // what has not arrived never does
      store->has_arrived = true;
      if (options_.is_timed) continue;
      const std::size_t place = store->place;
      under_way_[place] = std::move(under_way_.back());
      under_way_[place]->place = place;
      under_way_.pop_back();
    }
    block->under_way.clear();
    for (Thread& thread : block->threads) {
      if (thread.state == Thread::State::ended) continue;
      if (thread.state == Thread::State::polling) stop_polling(thread);
      if (thread.state == Thread::State::ready) std::erase(ready_, &thread);
      thread.is_killed = true;
      if (thread.fiber)
        give_turn(thread);
      else
        end_thread(thread);
    }
  }
  const auto it = std::ranges::find(grids_, &grid, &std::unique_ptr<Grid>::get);
  failed_.push_back(std::move(*it));
  grids_.erase(it);
  grid.ended(grid.error);
  start_blocks();
}

void Machine::kill(const std::string& error) {
  while (!grids_.empty()) fail(*grids_.front(), error);
}

// ---- turns ----

bool Machine::run(std::uint64_t max_steps) {
  bool has_progressed = false;
  for (std::uint64_t turn = 0; turn < max_steps; ++turn) {
    if (!ready_.empty()) {
      Thread* const thread = pick();
      if (thread != nullptr) {
        ready_.pop_back();
        give_turn(*thread);
      }
      if (!under_way_.empty() && (thread == nullptr || chance(arrivals_))) arrive_any();
    } else if (!under_way_.empty()) {
      arrive_any();
    } else {
      return has_progressed;
    }
    has_progressed = true;
  }
  return has_progressed;
}

/// Some threads of some blocks are slow, now these, now those: what others have not waited for
/// shows in them. Never all blocks at once, or they would only wait for one another.
bool Machine::is_slow(const Thread& thread) const {
  constexpr std::uint64_t kOneIn = 8;
  const Block& block = *thread.block;
  const auto hash = [this](std::uint64_t value) {
    value = (slow_ ^ value) * 0x9E3779B97F4A7C15U;
    return (value ^ value >> 29) * 0xBF58476D1CE4E5B9U >> 40;
  };
  const std::uint64_t place = static_cast<std::uint64_t>(block.grid->device) << 32 | block.index;
  return hash(place) % 2 == 0 && hash(place * 1024 + thread.index + 1) % kOneIn == 0;
}

/// The next of those that are ready, moved to their end; null: a store arrives first.
Thread* Machine::pick() {
  constexpr int kMaxTries = 8;
  const auto take = [this](Thread*& picked) {
    std::swap(picked, ready_.back());
    return ready_.back();
  };
  if (options_.is_timed) return take(ready_[random() % ready_.size()]);
  if (chance(1000)) slow_ = random();
  for (int tries = 0; tries < kMaxTries; ++tries)
    if (Thread*& picked = ready_[random() % ready_.size()]; !is_slow(*picked)) return take(picked);
  if (!under_way_.empty() && stores_overtake_ && !chance(16)) return nullptr;
  return take(ready_[random() % ready_.size()]);
}

void Machine::give_turn(Thread& thread) {
  if (!thread.fiber)
    thread.fiber = std::make_unique<Fiber>([&thread] {
      const Grid& grid = *thread.block->grid;
      std::vector<std::max_align_t> values = grid.arguments;  // each thread's own
      std::vector<void*> arguments(grid.argument_places.size());
      std::ranges::transform(grid.argument_places, arguments.begin(),
                             [&](std::size_t place) { return &values[place]; });
      grid.kernel->entry(arguments.data());
    });
  thread.state = Thread::State::running;
  Thread* const thread_before = std::exchange(current_thread, &thread);
  Machine* const machine_before = std::exchange(current_machine, this);
  thread.fiber->resume();
  current_thread = thread_before;
  current_machine = machine_before;
  if (thread.fiber->has_ended()) end_thread(thread);
}

void Machine::make_ready(Thread& thread) {
  thread.state = Thread::State::ready;
  ready_.push_back(&thread);
}

void Machine::wait_as(Thread::State state) {
  Thread& thread = me();
  if (thread.is_killed) throw Killed{};  // unwinding, it waits for nothing any more
  thread.state = state;
  thread.fiber->yield();
  if (thread.is_killed) throw Killed{};
}

void Machine::maybe_yield() {
  if (options_.is_timed || !chance(8)) return;
  ready_.push_back(&me());
  wait_as(Thread::State::ready);
}

// ---- barriers and warps ----

bool Machine::meet_at_barrier(unsigned id, unsigned threads, bool value) {
  Thread& thread = me();
  Block& block = *thread.block;
  if (id >= Block::kBarriers || threads == 0 || threads % 32 != 0 || threads > block.threads.size())
    throw Fault{"barrier " + std::to_string(id) + " of " + std::to_string(threads) + " threads"};
  Meeting& meeting = block.barriers[id];
  if (!meeting.arrived.empty() && meeting.expected != threads)
    throw Fault{"barrier " + std::to_string(id) + " of " + std::to_string(threads) + " and of " +
                std::to_string(meeting.expected) + " threads"};
  meeting.expected = threads;
  meeting.arrived.push_back(&thread);
  thread.contribution = value ? 1 : 0;
  thread.barrier = id;
  if (meeting.arrived.size() == threads) {
    const bool any =
        std::ranges::any_of(meeting.arrived, [](Thread* t) { return t->contribution != 0; });
    for (Thread* const each : meeting.arrived) each->result = any ? 1 : 0;
    order_memory(meeting.arrived);
    release(meeting);
    wait_as(Thread::State::ready);
  } else {
    wait_as(Thread::State::at_barrier);
  }
  return me().result != 0;
}

std::uint64_t Machine::meet_in_warp(std::uint64_t contribution, unsigned lane, bool gathers) {
  Thread& thread = me();
  Block& block = *thread.block;
  Meeting& meeting = block.warps[thread.index / 32];
  thread.contribution = contribution;
  thread.lane = lane;
  meeting.arrived.push_back(&thread);
  if (meeting.arrived.size() == 32) {
    std::array<std::uint64_t, 32> values{};
    std::uint64_t bits = 0;
    for (const Thread* each : meeting.arrived) {
      values[each->index % 32] = each->contribution;
      bits |= (each->contribution & 1) << (each->index % 32);
    }
    for (Thread* const each : meeting.arrived)
      each->result = gathers ? bits : values[each->lane % 32];
    if (gathers) order_memory(meeting.arrived);
    release(meeting);
    wait_as(Thread::State::ready);
  } else {
    wait_as(Thread::State::in_warp);
  }
  return me().result;
}

void Machine::release(Meeting& meeting) {
  for (Thread* const each : meeting.arrived) make_ready(*each);
  meeting.arrived.clear();
}

void Machine::order_memory(const std::vector<Thread*>& together) {
  const std::uint64_t mark = ++last_mark_;
  std::vector<BatchPtr> all;
  const auto add = [&](const BatchPtr& batch) {
    if (!batch || batch->outstanding == 0 || batch->mark == mark) return;
    batch->mark = mark;
    all.push_back(batch);
  };
  const std::vector<BatchPtr>* last = nullptr;
  for (Thread* const each : together) {
    add(each->own);
    if (each->known && each->known.get() != last)
      for (const BatchPtr& batch : *each->known) add(batch);
    last = each->known.get();
    each->own.reset();
  }
  const Known known =
      all.empty() ? nullptr : std::make_shared<const std::vector<BatchPtr>>(std::move(all));
  for (Thread* const each : together) each->known = known;
}

// ---- polling ----

void Machine::pause() {
  constexpr std::size_t kMaxWatches = 256;
  Thread& thread = me();
  const auto go_on = [&] {
    me().watches.clear();
    me().looked_at_time = false;
  };
  for (const Watch& each : thread.watches) {
    if (!has_changed(thread, each)) continue;
    go_on();
    return;
  }
  if (thread.watches.empty() || thread.watches.size() > kMaxWatches)
    blind_pollers_.push_back(&thread);
  for (const Watch& each : thread.watches) pollers_.add(each.address, &thread);
  wait_as(Thread::State::polling);
  go_on();
}

void Machine::stop_polling(Thread& thread) {
  std::erase(blind_pollers_, &thread);
  for (const Watch& each : thread.watches) pollers_.remove(each.address, &thread);
}

void Machine::wake_pollers(std::uintptr_t address, std::size_t bytes) {
  if (pollers_.empty() && blind_pollers_.empty()) return;
  std::vector<Thread*> woken(blind_pollers_);
  pollers_.find(address - longest_watch_ + 1, address + bytes, woken);
  for (Thread* const each : woken) {
    if (each->state != Thread::State::polling) continue;  // by another of its words
    stop_polling(*each);
    make_ready(*each);
  }
}

bool Machine::look_at_watches() {
  std::vector<Thread*> woken;
  for (Thread* const thread : pollers_.all())
    if (std::ranges::any_of(thread->watches,
                            [&](const Watch& each) { return has_changed(*thread, each); }))
      woken.push_back(thread);
  for (Thread* const each : woken) {
    if (each->state != Thread::State::polling) continue;
    stop_polling(*each);
    make_ready(*each);
  }
  return !woken.empty();
}

bool Machine::let_time_pass() {
  bool any = false;
  for (const std::unique_ptr<Grid>& grid : grids_) {
    for (const std::unique_ptr<Block>& block : grid->blocks) {
      if (!block) continue;
      for (Thread& thread : block->threads) {
        if (thread.state != Thread::State::polling || !thread.looked_at_time) continue;
        stop_polling(thread);
        make_ready(thread);
        any = true;
      }
    }
  }
  return any;
}

void Machine::sleep(double ns) {
  Thread& thread = me();
  if (!thread.watches.empty() || (thread.looked_at_time && !options_.is_timed)) {
    pause();
  } else if (options_.is_timed) {
    wait_outside(thread, ns);
  } else {
    ready_.push_back(&thread);
    wait_as(Thread::State::ready);
  }
}

// ---- what to say when nothing goes on ----

std::string Machine::describe() const {
  constexpr int kMaxLines = 24;
  std::string text;
  int lines = 0;
  for (const std::unique_ptr<Grid>& grid : grids_) {
    if (grid->started < grid->blocks.size())
      text += grid->kernel->name + " on GPU " + std::to_string(grid->device) + ": " +
              std::to_string(grid->blocks.size() - grid->started) + " blocks have not begun\n";
    for (const std::unique_ptr<Block>& block : grid->blocks) {
      if (!block || block->alive == 0) continue;
      if (++lines > kMaxLines) return text + "...\n";
      std::map<std::string, unsigned> waits;
      for (const Thread& thread : block->threads) {
        switch (thread.state) {
          case Thread::State::ready:
          case Thread::State::running: ++waits["can go on"]; break;
          case Thread::State::at_barrier:
            ++waits["at barrier " + std::to_string(thread.barrier)];
            break;
          case Thread::State::in_warp: ++waits["wait for their warp"]; break;
          case Thread::State::polling: {
            std::string what = "poll";
            for (std::size_t i = 0; i < std::min<std::size_t>(thread.watches.size(), 3); ++i) {
              const Watch& watch = thread.watches[i];
              std::uint64_t value = 0;
              std::memcpy(&value, watch.last_seen.data(), std::min<std::size_t>(watch.bytes, 8));
              char word[64];
              std::snprintf(word, sizeof word, " %#zx (%#zx)", std::size_t{watch.address},
                            std::size_t{value});
              what += word;
            }
            ++waits[what];
            break;
          }
          case Thread::State::waiting: ++waits["wait for bytes or time"]; break;
          case Thread::State::ended: ++waits["have ended"]; break;
        }
      }
      text += grid->kernel->name + " on GPU " + std::to_string(grid->device) + ", block " +
              std::to_string(block->index) + ":";
      int kinds = 0;
      for (const auto& [what, count] : waits) {
        if (++kinds > 6) break;
        text += (kinds > 1 ? ", " : " ") + std::to_string(count) + " threads " + what;
      }
      text += "\n";
    }
  }
  return text;
}

}  // namespace polypath::simt
