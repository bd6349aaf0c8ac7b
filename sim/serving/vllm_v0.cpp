// vLLM V0 (core/scheduler.py, block_manager.py to 0.8): by default a pass either reads whole prompts or decodes,
// prompts first; in chunked mode decodes and one partial prompt share a budget. The blocks of a prompt are taken at its
// start.
#include <algorithm>

#include "serving/scheduler.hpp"

namespace kvcast::serving {
namespace {

class VllmV0 final : public Scheduler {
 public:
  using Scheduler::Scheduler;

  void compose(Pass& pass) override {
    do {  // a request that has preempted itself is tried again at once: an empty step takes no time
      try_once(pass);
    } while (pass.empty() && !preempted_.empty() && preempted_.back()->in_flight == 0);
    pass.steady = pass.reads.empty() && preempted_.empty() && pass.decodes.size() == state_.running.size();
    pass.closed = !state_.waiting.empty();
  }

 private:
  bool possible(const QueuedRequest& entry) const override {
    const std::int64_t read_again = entry.footprint->reading(entry.prompt() + entry.outputs() - 1);
    const bool cut = rules_.vllm_v0.chunked || whole();
    return read_again + watermark() <= pool_.total() && peak(entry, true) <= pool_.total() &&
           (cut || entry.prompt() <= rules_.max_num_batched_tokens);
  }
  // Every decode needs a free block at its turn, whether it takes it or not.
  std::int64_t spare() const override { return 1; }

  void try_once(Pass& pass) {
    budget_ = rules_.max_num_batched_tokens;
    preempted_.clear();
    if (rules_.vllm_v0.chunked && !whole()) {
      decode(pass);
      read_on(pass);
      admit(pass);
    } else {
      admit(pass);
      if (pass.reads.empty()) {
        budget_ = rules_.max_num_seqs;  // decodes are limited by their number only
        decode(pass);
      }
    }
    // They are tried in the next pass first; in chunked mode those behind them have been tried in this one.
    for (QueuedRequest* entry : preempted_) state_.waiting.push_front(entry);
  }

  void decode(Pass& pass) {
    std::vector<QueuedRequest*>& running = state_.running;
    for (std::size_t i = 0; i < running.size(); ++i) {
      QueuedRequest& entry = *running[i];
      if (entry.reading()) continue;
      if (budget_ <= 0) return;
      while (pool_.free() < 1 || !state_.grow(entry, entry.computed + 1)) {
        const bool itself = running.back() == &entry;
        preempt_tail();
        preempted_.push_back(state_.waiting.front());
        state_.waiting.pop_front();
        if (itself) return;
      }
      state_.advance(pass, entry, 1);
      --budget_;
    }
  }

  // Continues the prompts of which a part has been read.
  void read_on(Pass& pass) {
    for (QueuedRequest* entry : state_.running) {
      if (entry->reading() && budget_ > 0) read(pass, *entry);
    }
  }

  void read(Pass& pass, QueuedRequest& entry) {
    const std::int64_t rest = entry.known - entry.computed;
    const bool cut = rules_.vllm_v0.chunked && !whole();
    state_.advance(pass, entry, cut ? std::min(rest, budget_) : rest);
    budget_ -= pass.reads.back().chunk.added;
  }

  void admit(Pass& pass) {
    while (QueuedRequest* entry = head()) {
      if (static_cast<std::int64_t>(state_.running.size()) >= rules_.max_num_seqs || budget_ <= 0) return;
      const bool cut = rules_.vllm_v0.chunked && !whole();
      // A request that was preempted can have grown beyond the budget: it is then read in a pass of its own.
      if (!cut && entry->target() > budget_ && !pass.reads.empty()) return;
      const std::int64_t blocks = entry->footprint->reading(entry->target());
      if (blocks > pool_.free() - watermark() || !state_.host_fits(*entry)) return;
      admit_head(0);
      state_.grow(*entry, entry->known);
      read(pass, *entry);
      if (alone()) return;
    }
  }

  std::int64_t budget_ = 0;
  std::vector<QueuedRequest*> preempted_;  // in this pass, the last admitted first
};

}  // namespace

std::unique_ptr<Scheduler> make_vllm_v0(State& state) { return std::make_unique<VllmV0>(state); }

}  // namespace kvcast::serving
