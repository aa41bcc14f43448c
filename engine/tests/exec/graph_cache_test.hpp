// The fixture of tests of the cache alone: graphs of three copies, half a message from GPU 0 to GPU
// 1 directly and half by way of GPU 2, launched as the graph executor does it.
#pragma once

#include <deque>

#include "exec/graph_cache.hpp"
#include "support/graph_uses.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {

class GraphCacheTest : public SimulatedTest {
 protected:
  static constexpr std::uint64_t kNodes = 3;
  static constexpr std::uint64_t kBytes = 256 * kKiB;

  /// A message with staging memory of its own.
  struct Message {
    Message(const CudaDriver& driver, const Node& node, std::uint64_t bytes, std::uint64_t seed);
    Payload payload;
    TestBuffer staging;
  };

  void SetUp() override;
  /// No graph was disturbed, none is left.
  void TearDown() override;

  void make_cache(int capacity);
  [[nodiscard]] GraphUses uses() const { return uses_of(cache_->counts()); }

  /// Equal sizes are one shape.
  Message& add_message(std::uint64_t bytes = kBytes);
  GraphRequest request(const Message& message) { return request(message, message.staging); }
  GraphRequest request(const Message& message, const TestBuffer& staging);
  std::shared_ptr<TransferState> ticket(CUstream stream);

  /// False: there was no graph to be had, and nothing was launched.
  bool launch(const GraphRequest& request, CUstream stream);
  bool launch(const Message& message, CUstream stream) { return launch(request(message), stream); }
  /// New contents, launched on the stream, which was idle: every byte arrives.
  void expect_launch(Message& message, CUstream stream);
  /// A graph of the request, launched elsewhere or not yet.
  CachedGraph* acquire(const Message& message, CUstream stream) {
    return cache_->acquire(request(message), *ticket(stream));
  }

  /// The driver that the cache calls; tests put another in its place before make_cache().
  std::shared_ptr<const CudaDriver> cache_driver_;
  std::unique_ptr<Devices> devices_;
  std::unique_ptr<EventPool> events_;
  std::deque<Message> messages_;
  std::optional<GraphCache> cache_;
};

}  // namespace polypath::test
