#include "simt/host_kernels.hpp"

#include <map>
#include <stdexcept>

namespace polypath::simt {
namespace {

std::map<std::string, HostKernel, std::less<>>& twins() {
  static std::map<std::string, HostKernel, std::less<>> all;
  return all;
}

}  // namespace

const HostKernel* find_host_kernel(std::string_view name) {
  const auto found = twins().find(name);
  return found == twins().end() ? nullptr : &found->second;
}

HostKernelRegistration::HostKernelRegistration(HostKernel twin) {
  std::string name = twin.name;
  if (!twins().emplace(name, std::move(twin)).second)
    throw std::logic_error("two kernels have the name " + name);
}

EmulatedThreads::EmulatedThreads(std::string_view name, unsigned threads) {
  twins().find(name)->second.folded_threads = threads;
}

}  // namespace polypath::simt
