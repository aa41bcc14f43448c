#include "preload/process.hpp"

#include <pthread.h>

#include <cstdlib>

#include "preload/engine.hpp"
#include "preload/hand_over.hpp"
#include "preload/rates.hpp"
#include "preload/report.hpp"
#include "preload/statistics.hpp"

namespace polypath::preload {
namespace {

void in_child() noexcept {
  forget_engine();
  forget_statistics();
  forget_rates();
}

void begin() noexcept {
  pthread_atfork(nullptr, nullptr, &in_child);
  read_report_setting();
  report_before_later_exits();
  set_thresholds_before_engine();
}

}  // namespace

void begin_process() noexcept {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, &begin);
}

void report_before_later_exits() noexcept {
  if (are_statistics_wanted()) std::atexit(&write_report);
}

}  // namespace polypath::preload
