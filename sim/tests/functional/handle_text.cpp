// Handles as text, for pipes.
#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "peer.hpp"

namespace polypath::sim::test {

std::string to_text(const CUipcMemHandle& handle) {
  std::string text;
  for (const char byte : handle.reserved)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

CUipcMemHandle to_handle(const std::string& text) {
  CUipcMemHandle handle{};
  if (text.size() != 2 * sizeof handle) throw std::runtime_error("no handle: " + text);
  for (std::size_t i = 0; i < sizeof handle; ++i)
    handle.reserved[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return handle;
}

}  // namespace polypath::sim::test
