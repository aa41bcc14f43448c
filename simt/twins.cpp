#include "simt/twins.hpp"

#include <map>
#include <stdexcept>

namespace polypath::simt {
namespace {

std::map<std::string, Twin, std::less<>>& twins() {
  static std::map<std::string, Twin, std::less<>> all;
  return all;
}

}  // namespace

const Twin* find_twin(std::string_view name) {
  const auto found = twins().find(name);
  return found == twins().end() ? nullptr : &found->second;
}

TwinEntry::TwinEntry(Twin twin) {
  std::string name = twin.name;
  if (!twins().emplace(name, std::move(twin)).second)
    throw std::logic_error("two kernels have the name " + name);
}

TwinFold::TwinFold(std::string_view name, unsigned threads) {
  twins().find(name)->second.folded_threads = threads;
}

}  // namespace polypath::simt
