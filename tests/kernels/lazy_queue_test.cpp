// Checks that the emulator's streams expose a missing event.
#include "device/lazy_queue.hpp"

#include <catch2/catch.hpp>

#include "device/async.hpp"

namespace kvcast::tests {

using namespace kernels;

namespace {

struct InOrder {
  explicit InOrder(emulator::Order order) { emulator::set_order(order); }
  ~InOrder() { emulator::set_order(emulator::Order::kLate); }
};

// One stream writes 7, another copies it; with or without an event between them.
int copied(emulator::Order order, bool with_event) {
  const InOrder here(order);
  int written = 1, seen = 0;
  const int seven = 7;
  Stream first, second;
  Event done;
  first.copy(&written, &seven, sizeof seven);
  first.record(done);
  if (with_event) second.wait(done);
  second.copy(&seen, &written, sizeof seen);
  second.synchronize();
  first.synchronize();
  return seen;
}

}  // namespace

TEST_CASE("an event orders two streams whenever they run") {
  CHECK(copied(emulator::Order::kSoon, true) == 7);
  CHECK(copied(emulator::Order::kLate, true) == 7);
}

TEST_CASE("without an event the late order exposes the missing wait") {
  CHECK(copied(emulator::Order::kLate, false) == 1);
}

TEST_CASE("work of a stream keeps its order and begins when something waits for it") {
  const InOrder here(emulator::Order::kLate);
  emulator::LazyQueue queue;
  std::string text;
  queue.push([&] { text += 'a'; });
  const auto middle = queue.mark();
  queue.push([&] { text += 'b'; });
  CHECK(text.empty());
  queue.drain(middle.get());
  CHECK(text == "a");
  queue.drain(nullptr);
  CHECK(text == "ab");
}

TEST_CASE("streams that wait for each other are reported") {
  const InOrder here(emulator::Order::kLate);
  emulator::LazyQueue first, second;
  auto of_second = std::make_shared<emulator::Mark>();
  of_second->queue = &second;
  first.wait(of_second);
  const auto of_first = first.mark();
  second.wait(of_first);
  second.push([of_second] { of_second->reached = true; });
  CHECK_THROWS_AS(first.drain(nullptr), std::logic_error);
}

TEST_CASE("an event that was never recorded does not block a stream") {
  const InOrder here(emulator::Order::kLate);
  Stream stream;
  const Event never;
  int to = 0;
  const int from = 3;
  stream.wait(never);
  stream.copy(&to, &from, sizeof to);
  stream.synchronize();
  CHECK(to == 3);
}

}  // namespace kvcast::tests
