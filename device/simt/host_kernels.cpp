#include "simt/host_kernels.hpp"

#include <map>
#include <stdexcept>

namespace polypath::simt {
namespace {

std::map<std::string, HostKernel, std::less<>>& host_kernels() {
  static std::map<std::string, HostKernel, std::less<>> all;
  return all;
}

}  // namespace

const HostKernel* find_host_kernel(std::string_view name) {
  const auto it = host_kernels().find(name);
  return it == host_kernels().end() ? nullptr : &it->second;
}

HostKernelRegistration::HostKernelRegistration(HostKernel kernel) {
  std::string name = kernel.name;
  if (!host_kernels().emplace(name, std::move(kernel)).second)
    throw std::logic_error("two kernels have the name " + name);
}

EmulatedThreads::EmulatedThreads(std::string_view name, unsigned threads) {
  host_kernels().find(name)->second.folded_threads = threads;
}

}  // namespace polypath::simt
