// Streams of the emulator. Work that is queued runs as late as the rules of CUDA allow, when something waits for it, or
// as soon as they allow: a result that holds in both orders does not rest on luck, and a missing event shows.
#pragma once

#include <deque>
#include <functional>
#include <memory>

namespace kvcast::kernels::emulator {

enum class Order { kLate, kSoon };
// For all queues of the process; kLate unless said otherwise.
void set_order(Order order);

class LazyQueue;

// A place in a queue that others may wait for.
struct Mark {
  LazyQueue* queue = nullptr;
  bool reached = false;
};

// Calls from several threads are taken one after another.
class LazyQueue {
 public:
  ~LazyQueue() { drain(nullptr); }
  void push(std::function<void()> work);
  std::shared_ptr<Mark> mark();
  // What is pushed later begins when the mark has been reached; at once for no mark.
  void wait(std::shared_ptr<Mark> mark);
  // Runs what has been pushed until the mark is reached; all of it for none. Throws std::logic_error where queues wait
  // for each other in a circle.
  void drain(const Mark* until);

 private:
  void advance();
  std::deque<std::function<void()>> work_;
  bool draining_ = false;
};

}  // namespace kvcast::kernels::emulator
