// The figures, as they are found: a line each on standard output, and all of them as JSON.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

namespace polypath::facts {

class Report {
 public:
  void figure(const std::string& section, const std::string& what, double value,
              const std::string& unit) {
    fmt::print("{:<12}  {:<58}  {:>10.3f} {}\n", section, what, value, unit);
    std::fflush(stdout);
    json_["figures"].push_back(
        {{"section", section}, {"what", what}, {"value", value}, {"unit", unit}});
  }
  /// Something that this node or driver cannot show.
  void skipped(const std::string& section, const std::string& what, const std::string& why) {
    fmt::print("{:<12}  {:<58}  skipped: {}\n", section, what, why);
    json_["skipped"].push_back({{"section", section}, {"what", what}, {"why", why}});
  }

  /// {"figures": [{"section", "what", "value", "unit"}], "skipped": [{"section", "what", "why"}]}.
  [[nodiscard]] const nlohmann::json& json() const noexcept { return json_; }

 private:
  nlohmann::json json_ = {{"figures", nlohmann::json::array()},
                          {"skipped", nlohmann::json::array()}};
};

}  // namespace polypath::facts
