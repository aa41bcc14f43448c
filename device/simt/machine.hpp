// Runs kernels of several GPUs at once by their host builds: gives turns to their threads in an
// order that a seed shuffles, and lets what they store arrive late and out of order, or when a
// simulation of time says so. A machine is used by one thread of the program at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "simt/grid.hpp"
#include "simt/pollers.hpp"

namespace polypath::simt {

/// A launch. Arguments are copied.
struct Launch {
  const HostKernel* kernel = nullptr;
  int device = 0;
  unsigned blocks = 1;
  unsigned threads = 32;  ///< of a block; whole warps
  std::size_t shared_bytes = 0;
  /// So many blocks run on the device at once; others start when one ends. 0: any number.
  unsigned blocks_of_device = 0;
  /// While earlier kernels may still run: its threads wait for them before they use memory.
  bool begins_early = false;
  std::vector<std::vector<std::byte>> arguments;
};

class Machine {
 public:
  struct Options {
    std::uint64_t seed = 1;
    /// Stores and loads take what time Outside says, and happen in order otherwise.
    bool is_timed = false;
    /// Into how many parts a tile is cut, at most.
    unsigned max_parts = 4;
    /// What a warp stores of a line of 128 bytes in one instruction arrives at once, and is loaded
    /// so, as on GPUs that were tried for it.
    bool whole_lines = false;
  };

  explicit Machine(const Options& options);
  /// Kills what still runs.
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Begins a grid. `ended` is called from run() or kill(), once, after its last byte; with what
  /// went wrong, or with nothing. `outside` lives until then.
  void start(const Launch& launch, MemorySystem& outside,
             std::function<void(const std::string& error)> ended);

  /// Gives turns until no thread can go on, or `max_steps` were given. True when one was given, or
  /// anything arrived.
  bool run(std::uint64_t max_steps = UINT64_MAX);
  [[nodiscard]] bool has_grids() const noexcept { return !grids_.empty(); }
  [[nodiscard]] bool is_timed() const noexcept { return options_.is_timed; }

  /// Another device or the host may have written what threads poll. True when one of them goes on.
  bool look_at_watches();
  /// Lets threads go on that looked at the time while they polled; false when there are none.
  bool let_time_pass();
  /// Which grids run, and what their threads wait for; a few lines.
  [[nodiscard]] std::string describe() const;
  /// Ends all grids with that error.
  void kill(const std::string& error);

  // ---- what threads do (thread_calls.cpp), and outsiders never ----

  /// The thread whose turn it is.
  static Thread& me();
  static Machine& machine_of_me();

  void load(const detail::LoadPart* parts, std::size_t count, detail::Loading how);
  void store(std::uintptr_t to, const std::byte* value, std::size_t bytes, bool adds);
  /// As detail::store_line() and load_line(), of lines that come whole.
  void store_lines(void* to, const void* part);
  void load_lines(void* part, const void* from);
  std::uint64_t fetch_add(std::uintptr_t at, std::uint64_t value, unsigned bytes);
  std::uint64_t fetch_or(std::uintptr_t at, std::uint64_t bits, unsigned bytes);
  std::uint64_t fetch_and(std::uintptr_t at, std::uint64_t bits, unsigned bytes);
  std::uint64_t compare_exchange(std::uintptr_t at, std::uint64_t expected, std::uint64_t value,
                                 unsigned bytes);
  /// Until what the thread knows of has arrived; of its own GPU's memory only, if `is_local`.
  void fence(bool is_local);
  /// What a fence orders: until it has arrived.
  void wait_for_stores(Thread& thread, bool is_local);
  void forget_loaded();
  bool meet_at_barrier(unsigned id, unsigned threads, bool value);
  std::uint64_t meet_in_warp(std::uint64_t contribution, unsigned lane, bool gathers);
  void pause();
  void sleep(double ns);
  [[nodiscard]] const Options& options() const noexcept { return options_; }

 private:
  /// A warp's threads come with their parts of lines; the last one calls `run` with each line's
  /// threads, and all go on.
  template <typename Run>
  void meet_for_lines(void* part, const void* place, const Run& run);
  /// Where an atomic operation of this thread takes place, once its turn has come.
  std::byte* word_to_change(std::uintptr_t at, unsigned bytes);

  std::uint64_t random();
  bool chance(unsigned one_in) { return random() % one_in == 0; }

  void start_blocks();
  void start_block(Grid& grid);
  [[nodiscard]] bool is_slow(const Thread& thread) const;
  Thread* pick();
  void give_turn(Thread& thread);
  void end_thread(Thread& thread);
  void end_if_done(Grid& grid);
  void fail(Grid& grid, const std::string& error);
  void make_ready(Thread& thread);
  /// Gives the turn back; returns when the thread has been made ready.
  void wait_as(Thread::State state);
  /// Lets others go on, now and then.
  void maybe_yield();
  /// For threads that met: each knows from now on what any of them has stored or knew.
  void order_memory(const std::vector<Thread*>& together);
  void release(Meeting& meeting);

  // Loads and stores (stores.cpp).

  /// Waits, on a timed machine, until what the parts hold has come.
  void fetch(Thread& thread, std::span<const detail::LoadPart> parts, bool acquires);
  /// Waits, on a timed machine, for as long.
  void wait_outside(Thread& thread, double ns);
  /// A thread that one of these two waits for.
  void wake(Thread& thread);
  void post(Thread& thread, StorePtr store);
  void arrive(const StorePtr& store);
  void write(Store& store);
  void arrive_any();
  void finish(const StorePtr& store);
  void arrive_overlapping(Block& block, std::uintptr_t from, std::size_t bytes,
                          std::uint64_t before);
  [[nodiscard]] bool has_changed(const Thread& thread, const Watch& watch) const;
  void wake_pollers(std::uintptr_t address, std::size_t bytes);
  void watch(Thread& thread, std::uintptr_t address, const std::byte* at, const std::byte* seen,
             std::size_t bytes);
  void stop_polling(Thread& thread);
  void read(Thread& thread, const detail::LoadPart& part, detail::Loading how);
  /// The block's own stores under way, over what memory holds.
  static void overlay(const Block& block, std::uintptr_t from, std::byte* to, std::size_t bytes);

  Options options_;
  std::uint64_t random_;
  std::uint64_t slow_ = 0;  ///< says which threads are
  bool stores_overtake_;    ///< slow threads
  unsigned arrivals_;       ///< one turn in `arrivals_` lets a store arrive
  std::vector<std::unique_ptr<Grid>> grids_;
  std::vector<std::unique_ptr<Grid>> failed_;  ///< callbacks may still come for them
  std::deque<Grid*> starting_;                 ///< with blocks that have not begun
  std::map<int, unsigned> running_blocks_;
  std::vector<Thread*> ready_;
  std::vector<StorePtr> under_way_;  ///< of a machine that is not timed
  Pollers pollers_;
  std::size_t longest_watch_ = 1;
  std::vector<Thread*> blind_pollers_;  ///< that poll nothing: any store may be it
  std::uint64_t last_serial_ = 0;
  std::uint64_t last_mark_ = 0;
};

}  // namespace polypath::simt
