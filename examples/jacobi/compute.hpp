// Where the arithmetic is done.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "field.hpp"

namespace jacobi {

/// Both kinds give the same bits. Members block until they are done, and throw std::runtime_error.
class Compute {
 public:
  virtual ~Compute() = default;

  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// Initial values for the block and its halo, of a grid with `rows` rows.
  virtual void begin(Field& field, std::uint64_t rows) = 0;
  /// The rows of `field.next()` from those and the halo of `field.now()`. Returns the largest
  /// change of an element.
  virtual float step(Field& field) = 0;
  /// The sum of the digests of the block's elements, modulo 2^64.
  virtual std::uint64_t digest(Field& field) = 0;
};

/// By kernels on the current context's GPU; null where the driver, or this build, has none.
std::unique_ptr<Compute> gpu_compute();
/// On the host: the field is copied there and back in every step.
std::unique_ptr<Compute> host_compute();

}  // namespace jacobi
