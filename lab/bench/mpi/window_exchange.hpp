// A window of nonblocking messages along each flow.
#pragma once

#include <vector>

#include "exchange.hpp"

namespace mpi_bench {

/// The method of osu_bw and osu_bibw, but that each message of a window has memory of its own: MPI
/// forbids receives under way to overlap.
class WindowExchange final : public Exchange {
 public:
  /// `acknowledge`: the receiver of a window then sends a short message back, which its sender
  /// awaits.
  WindowExchange(Flows flows, const Buffers& buffers, bool acknowledge);

  [[nodiscard]] const Flows& flows() const noexcept override { return flows_; }
  void run(const Layout& layout) override;

 private:
  Flows flows_;
  const Buffers& buffers_;
  bool acknowledge_;
  std::vector<MPI_Request> requests_;
};

}  // namespace mpi_bench
