// Where streams wait for what the host does for an exchange between nodes.
//
//   on the stream   ... hold_until()'s event | a wait for a word | ...
//   on the host                  looks   -> advance() until it is done -> the word
//
// Engines that work on the stream itself are watched without holding it up (watch()).
//
// A timeout of a rank never goes unnoticed: after the event the host checks whether a kernel of
// this rank timed out; and a stream whose exchange fails goes on only once the
// communicator of its node is aborted, which all ranks there see when they check.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/network_transport.hpp"
#include "comm/registered_memory.hpp"
#include "driver/resources.hpp"

namespace polypath {

class NetworkProgress {
 public:
  /// `rank`: this one, among all. With `progress_in_caller` the caller calls progress(), otherwise
  /// a thread does. `local` must outlive it. Throws DriverError.
  NetworkProgress(Communicator& local, int rank, bool progress_in_caller);
  ~NetworkProgress();
  NetworkProgress(const NetworkProgress&) = delete;
  NetworkProgress& operator=(const NetworkProgress&) = delete;

  /// Lets `stream` wait until `advance` returns true, which is called again and again once the
  /// stream has come here: by one thread at a time, and not after an abort. What it throws aborts
  /// the communicator, and so does the time limit. The context is current. Throws DriverError.
  void hold_until(CUstream stream, std::function<bool()> advance);
  /// Holds nothing up: aborts the communicator unless the stream comes here within the time limit,
  /// from when it has come to `began`. After an abort by any rank, `hurry` is called.
  void watch(CUstream stream, Event began, std::function<void()> hurry);
  /// Makes the due calls, without waiting. False: a thread does.
  bool progress() noexcept;
  /// Ends the thread: nothing is called any more.
  void stop() noexcept;

  Event take_event();

 private:
  struct Waiting {
    std::uint64_t number = 0;
    std::vector<Event> events;      ///< the stream has come here; and to where its time begins
    std::uint64_t* word = nullptr;  ///< null: no stream waits for it
    std::function<bool()> advance;
    std::function<void()> hurry;
    std::chrono::steady_clock::time_point since{};  ///< when the time began
    bool has_come = false;
  };
  void add(CUstream stream, std::vector<Event> events, std::function<bool()> advance,
           std::function<void()> hurry);
  [[nodiscard]] bool has_passed(const Event& event) const;
  bool advance(Waiting& waiting);
  void advance_all() noexcept;  // with the lock
  void run(const std::stop_token& stop);

  Communicator& local_;
  const int rank_;
  const bool by_caller_;
  RegisteredMemory words_;
  std::uint64_t number_ = 0;
  std::mutex mutex_;  // of what follows
  std::condition_variable_any came_;
  std::list<Waiting> waiting_;
  std::vector<Event> events_;  // free
  std::jthread thread_;
};

}  // namespace polypath
