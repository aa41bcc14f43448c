// Watches the load of the node's links for a context: what this process and others copy, and how
// long staged routes take against their plans. The planner's side of it is one question: which
// routes of this plan have a link that others use now?
//
// On the caller's path are relaxed atomics and a look at the clock; samples that have ended are
// read by the next call after that. Probes are made by a thread of its own. In virtual time nothing
// may depend on another thread: there the callers' thread makes them, in the node's time.
//
// Nothing here fails a call: a sample or a probe that fails costs a route at most.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/options.hpp"
#include "core/link_load.hpp"
#include "core/link_probes.hpp"
#include "core/node_source.hpp"
#include "core/peer_processes.hpp"
#include "core/pointer_info.hpp"
#include "exec/executor.hpp"
#include "plan/plan_maker.hpp"

namespace polypath {

/// What is known when one transfer is planned.
struct LoadLook {
  std::uint64_t now_ns = 0;
  std::vector<std::uintptr_t> streams;  ///< stream_key() of the callers
  std::vector<ForeignLoad> others;

  /// 0: there is none.
  [[nodiscard]] std::uintptr_t first_stream() const {
    return streams.empty() ? 0 : streams.front();
  }
};

/// One line of `polypath topo --load`: a directed link, or all links of one direction between a GPU
/// and host memory.
struct LinkLoadInfo {
  int link = 0;
  LinkState state = {};
  /// Predicted times of all copies so far, by process; that of this process first.
  std::vector<std::pair<int, std::uint64_t>> busy_ns = {};
};

/// Thread-safe. No function throws unless it says so.
class LoadMonitor {
 public:
  /// All must outlive it.
  LoadMonitor(const NodeSource& source, const Options& options, Devices& devices,
              ImportedMemories& imports, RouteResources& resources, PeerProcesses& others);
  /// Waits for no probe.
  ~LoadMonitor();
  LoadMonitor(const LoadMonitor&) = delete;
  LoadMonitor& operator=(const LoadMonitor&) = delete;

  /// The clock of all times here: CLOCK_MONOTONIC, or a simulated node's own.
  [[nodiscard]] std::uint64_t now_ns() const { return clock_(); }
  /// Whether it is switched on.
  [[nodiscard]] bool is_on() const noexcept { return is_on_; }
  [[nodiscard]] const CudaDriver& driver() const noexcept { return *driver_; }

  /// A number that is the stream's own; of the streams without a handle one a GPU.
  static std::uintptr_t stream_key(CUstream stream, int gpu) noexcept;

  // Copies of this process:

  /// What the driver has just said of the memory at `address`: it is not asked again for a while.
  void note_memory(CUdeviceptr address, const PointerInfo& info) noexcept;
  /// A native copy, about to be issued on `stream`.
  void note_copy(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes, CUstream stream) noexcept;
  /// What a plan puts on links, from before it is issued on: a thread that is halted in between is
  /// not overlooked.
  class OwnIssue {
   public:
    /// `plan` must outlive it; `stream` is that of the first caller. Notes what the plan takes.
    OwnIssue(LoadMonitor& monitor, const Plan& plan, std::uintptr_t stream) noexcept;
    ~OwnIssue() { end(false); }
    OwnIssue(const OwnIssue&) = delete;
    OwnIssue& operator=(const OwnIssue&) = delete;
    /// The calls have returned. `has_issued`: what they put on links has begun, or begins now.
    void end(bool has_issued) noexcept;
    /// The time before anything was issued.
    [[nodiscard]] std::uint64_t begun_ns() const noexcept { return begun_ns_; }

   private:
    LoadMonitor& monitor_;
    const Plan& plan_;
    std::uintptr_t stream_;
    std::uint64_t begun_ns_ = 0;
    bool is_open_ = false;
  };
  /// The plan was issued: others are told of what it puts on links.
  void note_split(const Plan& plan, const LoadLook& look) noexcept;

  /// Whether copies that this process has issued still occupy the link between two memories, by
  /// what they were predicted to take. False where nothing is counted.
  [[nodiscard]] bool is_occupied_by_own(MemoryId src, MemoryId dst) const noexcept;

  /// Whether a leg of the route is occupied so by copies of other streams than the look's, for
  /// longer than `tolerance`.
  [[nodiscard]] bool is_occupied_by_others(const Route& route, const Tolerance& tolerance,
                                           const LoadLook& look) const noexcept;

  // The transfer that is planned now:

  /// Begins a look: reads the clock, and samples that have ended. Where look_after_issue() will
  /// follow (`is_followed`), samples are read now only if a link is in doubt or the caller was away
  /// for a while: reading them delays the transfer.
  void look(LoadLook& look, bool is_followed = true) noexcept;
  /// The transfer of the look was issued: reads samples of earlier ones that have ended.
  void look_after_issue() noexcept;
  /// Adds what other processes tell. Throws std::bad_alloc.
  void add_others(LoadLook& look, const std::vector<GpuLoad>& loads) const;
  /// All of it, for a caller's stream. Throws std::bad_alloc.
  LoadLook look(std::uintptr_t stream);
  /// Whether a leg of the staged route would wait for others. A measured link is probed for it.
  bool is_loaded(const Route& route, const Tolerance& tolerance, const LoadLook& look) noexcept;
  /// Whether to sample the transfer: a link of its staged routes was not sampled for a while.
  /// `taken`: samples of transfers issued together with it.
  [[nodiscard]] bool is_due_for_sample(const TransferPlan& transfer, std::size_t taken,
                                       std::uint64_t now_ns) const noexcept;
  /// For how long the CPU of this machine issues the plan by streams, as far as samples say.
  [[nodiscard]] double issue_us(const Plan& plan) const noexcept {
    return polypath::issue_us(plan, node_.costs) * issue_times_.ratio();
  }
  /// A sample for the executor; null where there is no memory.
  std::shared_ptr<TransferSample> sample(const TransferPlan& plan, int caller_gpu,
                                         std::uint64_t now_ns) noexcept;
  /// What a sample times. A collective's copies go next to a kernel, which stands for the direct
  /// route. They make links suspect, but that they lose time holds no link back from transfers.
  enum class Sampled : std::uint8_t { transfer, collective };
  /// The sample's transfer was issued just now; `begun_ns`: OwnIssue::begun_ns().
  void keep(std::shared_ptr<TransferSample> sample, const Plan& plan, std::size_t transfer,
            const LoadLook& look, std::uint64_t begun_ns,
            Sampled sampled = Sampled::transfer) noexcept;

  // The route that is prepared now, by the thread that prepares it:

  /// Until check() its links of host memory that were never probed count as loaded.
  void hold(const Route& route) noexcept;
  /// Probes those links, for at most a tenth of a second, unless `is_prepared` is false.
  void check(const Route& route, bool is_prepared) noexcept;

  /// The node was measured anew: nothing that was known before holds.
  void use(const Node& node);

  /// The load of all loaded links, with that of others. Throws std::bad_alloc.
  std::vector<LinkLoadInfo> loads();

 private:
  static constexpr std::size_t kMaxSamples = 4;

  struct KeptSample {
    std::shared_ptr<TransferSample> sample;
    struct Leg {
      std::size_t route = 0;
      bool is_staged = false;
      int link = 0;
    };
    std::uintptr_t stream = 0;  ///< the caller's
    std::vector<Leg> legs = {};
    std::vector<double> parts = {};  ///< of the bytes, by route
    double direct_part = 0;          ///< the direct route's
    double predicted_us = 0;
    double native_us = 0;
    double launch_us = 0;  ///< what the CPU takes to issue the copies, were they nodes of a graph
    Sampled sampled = Sampled::transfer;
    double halted_us = 0;  ///< by how much longer than usual the CPU took, if that was far too long
    std::uint64_t kept_ns = 0;  ///< before anything was issued
    std::uint64_t due_ns = 0;
  };
  struct Measured {
    MeasuredLink link;
    int probe_link = -1;  ///< of the slot's: that which a route used last
    bool is_held = false;
    int lateness = 0;           ///< of the last samples
    int losses = 0;             ///< samples in a row by which the route was the loss of a transfer
    std::uint64_t hold_ns = 0;  ///< of the last hold; 0: a sample was no loss since then
    bool is_under_way = false;
    std::uint64_t begun_ns = 0;
  };

  /// For how long a share of the plan occupies a link of its route.
  [[nodiscard]] std::uint64_t occupied_ns(const Plan& plan, const RouteShare& share, int leg) const;
  /// Where the memory of a page was a while ago.
  struct Page {
    std::uint64_t monitor = 0;
    std::uint64_t page = 0;
    std::uint64_t asked_ns = 0;
    int gpu = 0;
  };
  /// The calling thread has one for each of several pages.
  static Page& page_of(CUdeviceptr address) noexcept;
  /// The GPU that holds the memory, -1: the host. By the driver; remembered by page for a while.
  int gpu_of(CUdeviceptr address, std::uint64_t now_ns);
  void publish(int slot, std::uint64_t now_ns, bool is_urgent);
  void read_samples(std::uint64_t now_ns);
  /// read_samples(), whose errors are logged.
  void try_read_samples(std::uint64_t now_ns) noexcept;
  // With mutex_ held:
  /// Whether no other stream of this process used the links of its staged routes meanwhile, nor
  /// filled a port of them together with it. A slow direct route makes no other one late; it counts
  /// where only the whole is timed (`has_whole`).
  [[nodiscard]] bool was_alone(const KeptSample& kept, bool has_whole) const;
  void judge(const KeptSample& kept, const SampleTimes& times, std::uint64_t now_ns);
  /// Whether a sample with times of its routes took longer than it would have without its latest
  /// one.
  [[nodiscard]] static bool is_loss(const KeptSample& kept, const SampleTimes& times);
  /// Holds the links of a route by which transfers lose, though probes may find them free.
  /// `has_lost`: is_loss() of the sample.
  void count_loss(const KeptSample& kept, const SampleTimes& times, bool has_lost,
                  std::uint64_t now_ns);
  void suspect(int link, std::uint64_t now_ns);
  void set_state(int slot);
  void wake();
  /// Begins and reads probes as far as they are due. `lock` is released during calls of the driver.
  /// Returns in how many nanoseconds there may be more to do; 0: nothing until the next request.
  std::uint64_t step(std::unique_lock<std::mutex>& lock, std::uint64_t now_ns);
  void run(std::stop_token stop);

  const std::shared_ptr<const CudaDriver> driver_;
  const Node& node_;
  ImportedMemories& imports_;
  PeerProcesses& others_;
  const std::uint64_t id_;  ///< no other monitor of the process has it
  bool is_on_ = false;
  bool is_measuring_ = false;
  bool is_virtual_ = false;
  std::function<std::uint64_t()> clock_;
  LinkTable table_;
  std::vector<std::atomic<std::uint64_t>> published_ns_;  // by 2 * slot + (staged ? 1 : 0)
  std::vector<std::atomic<std::uint64_t>> sampled_ns_;    // by slot
  std::vector<std::atomic<bool>> is_wanted_;              // by slot
  std::atomic<std::size_t> kept_count_{0};
  std::atomic<std::uint64_t> next_read_ns_{0};
  std::atomic<bool> is_in_doubt_{false};  // a link's last samples were late, or lost time
  std::atomic<std::uint64_t> next_probe_ns_{0};
  std::atomic<int> loaded_count_{0};
  EventPool& timed_;
  IssueTimes issue_times_;   // of streams
  IssueTimes launch_times_;  // of graphs
  IssueTimes collective_times_;
  LinkProbes probes_;  // used by the thread, or in virtual time with mutex_ held
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Measured> measured_;  // by slot
  std::vector<KeptSample> kept_;
  bool is_asked_ = false;
  bool is_stopped_ = false;
  std::jthread thread_;
};

}  // namespace polypath
