// The order of calls on traces, rejections and stops.
#include "replay/schedule.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <mutex>
#include <string>

namespace kvcast::tests {
namespace {

// Records its calls; `bad` replays are rejected, and all of them if the trace itself is.
class Noted final : public replay::TraceWork {
 public:
  Noted(std::string name, std::size_t n, std::string& log, std::mutex& mutex)
      : name_(std::move(name)), n_(n), log_(log), mutex_(mutex) {}
  std::size_t replays() const override { return n_; }
  bool open(int) override {
    if (opened_ == parts) return false;
    ++opened_;
    note("open");
    if (refuse_trace || opened_ == broken_part) throw UserError("no such trace");
    return true;
  }
  void replay(std::size_t i, int) override {
    if (static_cast<int>(i) == bad) throw UserError("not this one");
    note(std::to_string(i));
    if (on_replay) on_replay();
  }
  void refuse(std::size_t i, const UserError& why) override { note(std::to_string(i) + " " + why.what()); }
  void close() override { note("close"); }

  int bad = -1;
  int parts = 1, broken_part = 0;
  bool refuse_trace = false;
  std::function<void()> on_replay;

 private:
  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    log_ += name_ + " " + what + "; ";
  }
  std::string name_;
  std::size_t n_;
  std::string& log_;
  std::mutex& mutex_;
  int opened_ = 0;
};

struct Fixture {
  std::string log;
  std::mutex mutex;
  std::vector<std::unique_ptr<replay::TraceWork>> work;
  Noted& add(const std::string& name, std::size_t n) {
    auto made = std::make_unique<Noted>(name, n, log, mutex);
    Noted& added = *made;
    work.push_back(std::move(made));
    return added;
  }
};

TEST_CASE("each trace is opened once, replayed and closed before the next") {
  Fixture f;
  f.add("a", 2), f.add("none", 0), f.add("b", 1);
  replay::run_replays(f.work, replay::ThreadUse::kReplays, 1);
  CHECK(f.log == "a open; a 0; a 1; a close; b open; b 0; b close; ");
}

TEST_CASE("a rejected replay leaves the others unaffected, and a rejected trace rejects all of its replays") {
  Fixture f;
  f.add("a", 3).bad = 1;
  f.add("b", 2).refuse_trace = true;
  replay::run_replays(f.work, replay::ThreadUse::kTraces, 1);
  CHECK(f.log ==
        "a open; a 0; a 1 not this one; a 2; a close; b open; b 0 no such trace; b 1 no such trace; b close; ");
}

TEST_CASE("all replays run over one part of a trace before the next, without those that were refused") {
  Fixture f;
  Noted& two = f.add("a", 2);
  two.parts = 2, two.bad = 0;
  Noted& broken = f.add("b", 2);
  broken.parts = 3, broken.broken_part = 2, broken.bad = 1;
  replay::run_replays(f.work, replay::ThreadUse::kReplays, 1);
  CHECK(f.log ==
        "a open; a 0 not this one; a 1; a open; a 1; a close; "
        "b open; b 0; b 1 not this one; b open; b 0 no such trace; b close; ");
}

TEST_CASE("no further replay begins after a stop") {
  Fixture f;
  std::stop_source stop;
  f.add("a", 3).on_replay = [&stop] { stop.request_stop(); };
  f.add("b", 1);
  CHECK_THROWS_AS(replay::run_replays(f.work, replay::ThreadUse::kReplays, 1, stop.get_token()), Cancelled);
  CHECK(f.log == "a open; a 0; ");
}

TEST_CASE("all replays are made with several threads, however they are distributed") {
  for (const replay::ThreadUse spread : {replay::ThreadUse::kReplays, replay::ThreadUse::kTraces}) {
    Fixture f;
    std::atomic<int> replays{0};
    for (int t = 0; t < 5; ++t) f.add("t", 7).on_replay = [&replays] { ++replays; };
    replay::run_replays(f.work, spread, 4);
    CHECK(replays == 35);
  }
}

}  // namespace
}  // namespace kvcast::tests
