// A profile of its own for a test, which the engine uses as long as it lives.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "polypath/uniconn.h"
#include "polypath/uniconn/environment.hpp"

namespace polypath::test {

class ProfileOfTest {
 public:
  ProfileOfTest() {
    std::string name = std::filesystem::temp_directory_path() / "backends.XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
    setenv("POLYPATH_PROFILE", file().c_str(), 1);
  }
  ~ProfileOfTest() {
    unsetenv("POLYPATH_PROFILE");
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  ProfileOfTest(const ProfileOfTest&) = delete;
  ProfileOfTest& operator=(const ProfileOfTest&) = delete;

  [[nodiscard]] std::filesystem::path file() const { return folder_ / "profile.toml"; }

  /// As if nine turns had taken just these us, of the first `ranks` GPUs.
  static nlohmann::json keep(polypath_context* engine, int op, int ranks, std::size_t bytes,
                             const std::vector<std::pair<int, double>>& measured) {
    constexpr int kTurns = 9;
    std::vector<int> gpus;
    for (int rank = 0; rank < ranks; ++rank) gpus.push_back(rank);
    std::vector<int> backends;
    std::vector<double> us;
    for (const auto& [backend, time_us] : measured) backends.push_back(backend);
    for (int turn = 0; turn < kTurns; ++turn)
      for (const auto& [backend, time_us] : measured) us.push_back(time_us);
    const polypath_backend_samples all{
        op,        gpus.data(), ranks, bytes, backends.data(), static_cast<int>(backends.size()),
        us.data(), kTurns};
    char* text = nullptr;
    polypath::detail::check(polypath_backend_save(engine, &all, &text));
    const auto value = nlohmann::json::parse(text);
    polypath_free_string(text);
    return value;
  }
  /// In the file.
  void replace(const std::string& old_text, const std::string& new_text) const {
    std::stringstream stream;
    stream << std::ifstream(file()).rdbuf();
    std::string text = stream.str();
    const auto at = text.find(old_text);
    if (at == std::string::npos) throw std::runtime_error(old_text + " is not in " + text);
    text.replace(at, old_text.size(), new_text);
    std::ofstream(file()) << text;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace polypath::test
