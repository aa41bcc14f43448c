#include "core/context_change.hpp"

#include <pthread.h>

#include <atomic>

#include "base/error.hpp"

namespace polypath {
namespace {

std::atomic<int> under_way{0};
std::atomic<bool> is_child_of_change{false};

[[gnu::constructor]] void prepare_children() {
  pthread_atfork(nullptr, nullptr, [] {
    if (under_way.exchange(0) > 0) is_child_of_change = true;
  });
}

}  // namespace

ContextChange::ContextChange() noexcept { ++under_way; }

ContextChange::~ContextChange() { --under_way; }

void ContextChange::require_none_at_fork() {
  if (is_child_of_change)
    throw Error(
        "this process was forked while another thread made or ended a context, and can make none; "
        "fork before, or start a new program");
}

}  // namespace polypath
