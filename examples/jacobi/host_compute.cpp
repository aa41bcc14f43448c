#include <algorithm>
#include <bit>
#include <span>

#include "arithmetic.h"
#include "compute.hpp"

namespace jacobi {
namespace {

class HostCompute final : public Compute {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "host"; }

  void begin(Field& field, std::uint64_t rows) override {
    const std::uint64_t columns = field.columns();
    before_.resize((field.rows() + 2) * columns);
    for (std::uint64_t row = 0; row < field.rows() + 2; ++row) {
      const std::uint64_t in_grid = (field.first() + row + rows - 1) % rows;
      for (std::uint64_t column = 0; column < columns; ++column)
        before_[row * columns + column] = initial(in_grid * columns + column);
    }
    field.now().write(0, std::as_bytes(std::span(before_)));
  }

  float step(Field& field) override {
    const std::uint64_t columns = field.columns();
    before_.resize((field.rows() + 2) * columns);
    after_.resize(field.rows() * columns);
    field.now().read(0, std::as_writable_bytes(std::span(before_)));
    float largest = 0;
    for (std::uint64_t row = 0; row < field.rows(); ++row) {
      for (std::uint64_t column = 0; column < columns; ++column) {
        const float* const here = &before_[(row + 1) * columns + column];
        const bool fixed = column == 0 || column == columns - 1;
        const float now =
            fixed ? *here : relax(here[-stride(columns)], here[stride(columns)], here[-1], here[1]);
        after_[row * columns + column] = now;
        largest = std::max(largest, change(now, *here));
      }
    }
    field.next().write(field.bytes(1), std::as_bytes(std::span(after_)));
    return largest;
  }

  std::uint64_t digest(Field& field) override {
    after_.resize(field.rows() * field.columns());
    field.now().read(field.bytes(1), std::as_writable_bytes(std::span(after_)));
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < after_.size(); ++i)
      sum += jacobi::digest(field.first() * field.columns() + i,
                            std::bit_cast<std::uint32_t>(after_[i]));
    return sum;
  }

 private:
  static std::ptrdiff_t stride(std::uint64_t columns) noexcept {
    return static_cast<std::ptrdiff_t>(columns);
  }

  std::vector<float> before_;  ///< with the halo
  std::vector<float> after_;
};

}  // namespace

std::unique_ptr<Compute> host_compute() { return std::make_unique<HostCompute>(); }

}  // namespace jacobi
