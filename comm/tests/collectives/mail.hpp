// Messages between ranks of this process, as a polypath_network.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "collective_case.hpp"
#include "polypath/comm.h"

namespace polypath::test {

/// Thread-safe. What is sent has gone, and what is received has come, only some tests later.
class Mail {
 public:
  /// For `rank`. The mail must outlive it.
  polypath_network network(int rank, bool progress_in_caller);

  /// No message of the rank comes any more.
  void lose_those_of(int rank);
  /// Calls of the rank fail.
  void refuse_those_of(int rank);
  [[nodiscard]] std::uint64_t sent_bytes(int rank);
  /// Networks that began, and did not end.
  [[nodiscard]] int open();

 private:
  using Envelope = std::tuple<int, int, int>;  // from, to, tag
  struct Rank {
    Mail* mail = nullptr;
    int rank = 0;
    std::uint64_t sent_bytes = 0;
  };
  struct Request {
    bool is_receive = false;
    Envelope envelope{};
    void* memory = nullptr;
    std::size_t bytes = 0;
    int tests = 0;
  };

  static int begin(void* user);
  static int send(void* user, int to, int tag, const void* bytes, std::size_t count,
                  std::uint64_t* request);
  static int receive(void* user, int from, int tag, void* bytes, std::size_t count,
                     std::uint64_t* request);
  static int test(void* user, std::uint64_t* request, int* done);
  static void end(void* user);

  std::mutex mutex_;
  std::map<int, Rank> ranks_;
  std::multimap<Envelope, Bytes> messages_;
  std::vector<Request> requests_;
  std::set<int> lost_;
  std::set<int> refused_;
  int open_ = 0;
};

}  // namespace polypath::test
