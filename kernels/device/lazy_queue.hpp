// Streams of the emulator. Queued work runs either as late as the rules of CUDA allow, when something waits for it, or
// as early: a result that is right in both orders does not depend on luck, and a missing event is detected.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace kvcast::kernels::emulator {

enum class Order { kLate, kSoon };
// Sets the order for all queues of the process; kLate by default.
void set_order(Order order);

class LazyQueue;

// A position in a queue that others may wait for.
struct Mark {
  LazyQueue* queue = nullptr;
  bool reached = false;
};

// Calls from several threads are taken one after another.
class LazyQueue {
 public:
  ~LazyQueue() { drain(nullptr); }
  void push(std::function<void()> work);
  // Pushed work is appended to this list instead of being queued, until the next call with null.
  void record(std::vector<std::function<void()>>* list);
  std::shared_ptr<Mark> mark();
  // Work pushed later begins when the mark has been reached; at once for no mark.
  void wait(std::shared_ptr<Mark> mark);
  // Runs pushed work until the mark is reached; all of it for none. Throws std::logic_error if queues wait for each
  // other in a cycle.
  void drain(const Mark* until);

 private:
  void advance();
  std::deque<std::function<void()>> work_;
  std::vector<std::function<void()>>* recording_ = nullptr;
  bool draining_ = false;
};

}  // namespace kvcast::kernels::emulator
