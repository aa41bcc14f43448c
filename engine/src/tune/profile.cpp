#include "tune/profile.hpp"

#include <fmt/format.h>
#include <polypath/polypath.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "topology/node_file.hpp"
#include "topology/toml_table.hpp"

namespace polypath {
namespace {

constexpr int kSchema = 4;
/// Without tables of collectives and of backends.
constexpr int kOldestSchema = 2;

std::string library_version() {
  return fmt::format("{}.{}.{}", POLYPATH_VERSION_MAJOR, POLYPATH_VERSION_MINOR,
                     POLYPATH_VERSION_PATCH);
}

/// The current time in UTC: "2026-11-22T09:30:00Z".
std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string to_text(const Profile& profile) {
  const toml::table table{{"profile", toml::table{{"schema", kSchema},
                                                  {"fingerprint", profile.fingerprint},
                                                  {"version", profile.version},
                                                  {"date", profile.date},
                                                  {"driver", profile.driver}}}};
  std::ostringstream text;
  text << format_node_file(profile.node) << '\n' << table << '\n' << profile.tables.format();
  text << "\n[end]\n";
  return text.str();
}

Profile read_profile(const std::filesystem::path& file) {
  const std::string name = file.string();
  Profile profile;
  try {
    const toml::table root = toml::parse_file(name);
    TomlTable whole(root, name, "profile");
    TomlTable table = whole.section("profile");
    if (const int schema = table.integer("schema", {1, 1e6});
        schema < kOldestSchema || schema > kSchema)
      table.fail("schema", fmt::format("is {}, this library reads {}", schema, kSchema));
    profile.fingerprint = table.text("fingerprint");
    profile.version = table.text("version");
    profile.date = table.text("date");
    profile.driver = table.text("driver");
    table.finish();
    if (!whole.has("end")) throw InvalidArgument(name + ": is cut short: [end] is missing");
    profile.tables.read(whole);
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(
        fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
  profile.node = read_node_file(file, profile.tables.names());
  return profile;
}

std::filesystem::path absolute_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? value : std::filesystem::path();
}

}  // namespace

Profile make_profile(Node node, std::string fingerprint, std::string driver) {
  return {std::move(node), std::move(fingerprint), library_version(), date_now(),
          std::move(driver)};
}

std::filesystem::path profile_directory() {
  if (const auto cache = absolute_variable("XDG_CACHE_HOME"); !cache.empty())
    return cache / "polypath";
  const auto home = absolute_variable("HOME");
  return home.empty() ? home : home / ".cache" / "polypath";
}

std::filesystem::path profile_file(const std::filesystem::path& directory,
                                   const std::string& fingerprint) {
  const bool usable = std::ranges::all_of(fingerprint, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  });
  if (fingerprint.empty() || !usable)
    throw InvalidArgument(fmt::format("\"{}\" is not a fingerprint", fingerprint));
  return directory / (fingerprint + ".toml");
}

std::string unusable_reason(const std::filesystem::path& file) {
  std::error_code failed;  // a file without a status cannot be opened either
  const auto there = std::filesystem::status(file, failed).type();
  if (there == std::filesystem::file_type::regular) return {};
  const bool is_nothing =
      there == std::filesystem::file_type::not_found || there == std::filesystem::file_type::none;
  // A link that leads nowhere is something.
  if (is_nothing && !std::filesystem::is_symlink(std::filesystem::symlink_status(file, failed)))
    return {};
  return fmt::format("{}: is no regular file, and a profile is one", file.string());
}

std::optional<Profile> load_profile(const std::filesystem::path& file,
                                    const std::string& fingerprint, std::string* why) {
  *why = unusable_reason(file);
  if (!why->empty()) return std::nullopt;
  try {
    if (!std::filesystem::exists(file)) return std::nullopt;
    Profile profile = read_profile(file);
    if (profile.version != library_version()) {
      *why = fmt::format("{}: is of version {}, this is {}", file.string(), profile.version,
                         library_version());
    } else if (profile.fingerprint != fingerprint) {
      *why = fmt::format("{}: was measured on another node or driver ({}, this is {})",
                         file.string(), profile.fingerprint, fingerprint);
    } else {
      return profile;
    }
  } catch (const InvalidArgument& error) {
    *why = error.what();
  } catch (const std::filesystem::filesystem_error& error) {
    *why = fmt::format("{}: {}", file.string(), error.code().message());
  }
  return std::nullopt;
}

bool save_profile(const std::filesystem::path& file, const Profile& profile, std::string* why) {
  *why = unusable_reason(file);
  if (!why->empty()) return false;
  // In the same folder, because rename() replaces a file only within one file system.
  std::string temporary = file.string() + ".XXXXXX";
  try {
    // A bare file name has no folder above it, and an empty path cannot be created.
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
    const int descriptor = mkstemp(temporary.data());
    if (descriptor < 0) throw std::system_error(errno, std::generic_category());
    close(descriptor);
    std::ofstream stream(temporary);
    stream << to_text(profile) << std::flush;
    if (!stream) throw std::system_error(errno, std::generic_category());
    stream.close();
    std::filesystem::rename(temporary, file);
    return true;
  } catch (const std::system_error& error) {
    *why = fmt::format("cannot write {}: {}", file.string(), error.code().message());
  }
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  return false;
}

}  // namespace polypath
