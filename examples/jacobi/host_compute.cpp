#include <span>

#include "compute.hpp"
#include "sweep.hpp"

namespace jacobi {
namespace {

class HostCompute final : public Compute {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "host"; }

  void begin(Field& field, std::uint64_t rows) override {
    before_.resize((field.rows() + 2) * field.columns());
    begin_rows(before_.data(), field.first() + rows - 1, field.rows() + 2, rows, field.columns());
    field.now().write(0, std::as_bytes(std::span(before_)));
  }

  float step(Field& field) override {
    before_.resize((field.rows() + 2) * field.columns());
    after_.resize(field.rows() * field.columns());
    field.now().read(0, std::as_writable_bytes(std::span(before_)));
    const float largest = sweep(before_.data(), after_.data(), field.rows(), field.columns());
    field.next().write(field.bytes(1), std::as_bytes(std::span(after_)));
    return largest;
  }

  std::uint64_t digest(Field& field) override {
    after_.resize(field.rows() * field.columns());
    field.now().read(field.bytes(1), std::as_writable_bytes(std::span(after_)));
    return digest_rows(after_.data(), field.first(), field.rows(), field.columns());
  }

 private:
  std::vector<float> before_;  ///< with the halo
  std::vector<float> after_;
};

}  // namespace

std::unique_ptr<Compute> host_compute() { return std::make_unique<HostCompute>(); }

}  // namespace jacobi
