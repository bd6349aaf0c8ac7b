#include "device/lazy_queue.hpp"

#include <mutex>
#include <stdexcept>

namespace kvcast::kernels::emulator {

namespace {
std::recursive_mutex& everything() {
  static std::recursive_mutex mutex;
  return mutex;
}
Order& order() {
  static Order chosen = Order::kLate;
  return chosen;
}
using Lock = std::lock_guard<std::recursive_mutex>;
}  // namespace

void set_order(Order chosen) {
  const Lock lock(everything());
  order() = chosen;
}

void LazyQueue::push(std::function<void()> work) {
  const Lock lock(everything());
  if (recording_) return recording_->push_back(std::move(work));
  work_.push_back(std::move(work));
  if (order() == Order::kSoon) drain(nullptr);
}

void LazyQueue::record(std::vector<std::function<void()>>* list) {
  const Lock lock(everything());
  recording_ = list;
}

std::shared_ptr<Mark> LazyQueue::mark() {
  auto mark = std::make_shared<Mark>();
  mark->queue = this;
  push([mark] { mark->reached = true; });
  return mark;
}

void LazyQueue::wait(std::shared_ptr<Mark> mark) {
  if (!mark) return;
  push([mark] {
    if (!mark->reached) mark->queue->drain(mark.get());
  });
}

void LazyQueue::drain(const Mark* until) {
  const Lock lock(everything());
  if (draining_) throw std::logic_error("streams wait for each other in a circle");
  draining_ = true;
  try {
    while (!work_.empty() && (until == nullptr || !until->reached)) advance();
  } catch (...) {
    draining_ = false;
    throw;
  }
  draining_ = false;
}

void LazyQueue::advance() {
  const std::function<void()> work = std::move(work_.front());
  work_.pop_front();
  work();
}

}  // namespace kvcast::kernels::emulator
