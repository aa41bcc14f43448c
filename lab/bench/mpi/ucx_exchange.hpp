// Puts over UCX's own API. MPI only introduces the processes to each other, and carries the word
// that a window has arrived.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <vector>

#include "exchange.hpp"
#include "introduction.hpp"

namespace mpi_bench {

namespace ucx {

struct Release {
  void operator()(ucp_context_h context) const noexcept { ucp_cleanup(context); }
  void operator()(ucp_worker_h worker) const noexcept { ucp_worker_destroy(worker); }
  void operator()(ucp_rkey_h key) const noexcept { ucp_rkey_destroy(key); }
};
using Context = std::unique_ptr<ucp_context, Release>;
using Worker = std::unique_ptr<ucp_worker, Release>;
using RemoteKey = std::unique_ptr<ucp_rkey, Release>;

}  // namespace ucx

/// A window of puts along each flow, then a flush, then the word to their receivers. Members throw
/// std::runtime_error with UCX's own text.
class UcxExchange final : public Exchange {
 public:
  /// Collective: every rank sends the address of its memory to the ranks that put into it. `flows`
  /// has at most one flow in each direction.
  UcxExchange(Flows flows, const Buffers& buffers);
  ~UcxExchange() override;

  [[nodiscard]] const Flows& flows() const noexcept override { return flows_; }
  void run(const Layout& layout) override;

 private:
  [[nodiscard]] Introduction export_sink();
  void import_sink(const Introduction& peer);
  /// Makes progress until a nonblocking operation of UCX is complete.
  void wait(ucs_status_ptr_t operation, const char* call);
  /// Makes progress until the receive that was begun is complete.
  void wait(MPI_Request& receive);

  Flows flows_;
  const Buffers& buffers_;
  ucx::Context context_;
  ucx::Worker worker_;
  ucp_mem_h registered_ = nullptr;  ///< the sink
  ucp_ep_h endpoint_ = nullptr;
  ucx::RemoteKey key_;
  std::uint64_t remote_ = 0;  ///< address of the peer's sink
  std::vector<ucs_status_ptr_t> puts_;
};

}  // namespace mpi_bench
