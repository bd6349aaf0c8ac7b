// Composes passes: one class an engine.
#pragma once

#include <cstdint>
#include <memory>

#include "serving/state.hpp"

namespace kvcast::serving {

class Scheduler {
 public:
  explicit Scheduler(State& state) : state_(state), rules_(state.rules), pool_(state.pool) {}
  virtual ~Scheduler() = default;

  // Fills an empty pass with the requests that are to run next, and takes their memory; leaves it empty if there is
  // nothing to run.
  virtual void compose(Pass& pass) = 0;
  // Before a pass is composed: lets requests run whose caches have come, and gives memory to the next ones.
  void receive();
  // Returns for how many passes after this one memory is known to suffice, up to `most`.
  std::int64_t repeats(const Pass& pass, std::int64_t most) const;
  // The pass has been repeated.
  virtual void repeated(std::int64_t /*times*/) {}

  // A prompt has been read, at the end of its last pass. Gives back what only its reading needed.
  virtual void has_read(QueuedRequest& entry);
  // A request has all its tokens, or is rejected. Gives back its memory.
  virtual void finish(QueuedRequest& entry) {
    state_.keep(entry);
    state_.release(entry);
  }
  // A request has its prompt, and another engine goes on with it. Gives back what only reading needed.
  void hold(QueuedRequest& entry);
  // The cache of that request has been sent.
  void sent(QueuedRequest& entry);
  // Takes out a request whose cache is not to come, if it is still expected.
  void drop(std::int64_t id);
  // Drops running requests that have ended; called after passes in which any has.
  virtual void drop_ended();
  // Rejects the head of the queue if it can never fit, or, if `stuck`, in any case.
  bool reject_head(bool stuck);

  // Blocks that requests use.
  virtual std::int64_t used() const { return pool_.total() - pool_.free(); }
  // Requests that have been admitted and have not left.
  virtual std::int64_t running() const { return std::ssize(state_.running); }

 protected:
  // Returns whether a request fits into the empty engine.
  virtual bool possible(const QueuedRequest& entry) const { return peak(entry, true) <= pool_.total(); }
  // Returns whether a request whose prompt is read elsewhere gets memory now, and takes what need not be sent.
  virtual bool room_for(QueuedRequest& entry, std::int64_t& there);
  // Blocks that must stay free in every pass.
  virtual std::int64_t spare() const { return 0; }

  // The same by all limits.
  bool possible_at_all(const QueuedRequest& entry) const;
  // The head of the queue that can fit at some time; null if there is none.
  QueuedRequest* head();
  // The most blocks that a request can need, preempted and read again at any time if `again`.
  std::int64_t peak(const QueuedRequest& entry, bool again) const;
  // Tokens with which a request ends; one more where it runs on until its last result is known.
  virtual std::int64_t last_length(const QueuedRequest& entry) const {
    return entry.prompt() + entry.outputs() - 1 + (rules_.in_flight > 1 ? 1 : 0);
  }
  // Takes the head of the queue, whose first `cached` tokens are there, into the running requests.
  void admit_head(std::int64_t cached);
  bool stuck() const {
    return state_.expected.empty() && state_.delivered.empty() && state_.kept == 0 &&
           (rules_.staging <= 0 || !state_.loading());
  }
  void stage();
  void reject(std::deque<QueuedRequest*>& from);
  void reject(QueuedRequest& entry);
  // Gives back the memory of the last running request, and puts it at the head of the queue.
  void preempt_tail();
  bool alone() const { return rules_.prompts == Prompts::kAlone; }
  bool whole() const { return rules_.prompts != Prompts::kChunked; }
  std::int64_t watermark() const;

  State& state_;
  const Rules& rules_;
  Blocks& pool_;
};

std::unique_ptr<Scheduler> make_vllm_v1(State& state);
std::unique_ptr<Scheduler> make_vllm_v0(State& state);
std::unique_ptr<Scheduler> make_sglang(State& state);
std::unique_ptr<Scheduler> make_trtllm(State& state);
std::unique_ptr<Scheduler> make_static_batch(State& state);

}  // namespace kvcast::serving
