#include "topology/fingerprint.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

namespace polypath {
namespace {

/// FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/
class Hash {
 public:
  void add(std::string_view text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
    add_byte(0);  // so that "ab", "c" differs from "a", "bc"
  }
  std::string hex() const { return fmt::format("{:016x}", value_); }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace

std::string fingerprint(const Node& node, const std::string& driver_version) {
  Hash hash;
  hash.add(driver_version);
  for (const Gpu& gpu : node.gpus)
    for (const std::string& text : {gpu.name, gpu.uuid, gpu.pci}) hash.add(text);
  for (const Link& link : node.links)
    hash.add(fmt::format("{} {} {} {}", to_string(link.from), to_string(link.to),
                         to_string(link.type), link.width));
  return hash.hex();
}

}  // namespace polypath
