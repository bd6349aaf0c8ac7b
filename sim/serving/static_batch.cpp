// Static batches: those that wait are read, group by group, and decode together until the last of them has all its
// tokens; those that have theirs run along as padding. Then the next batch begins.
#include <algorithm>

#include "base/error.hpp"
#include "serving/scheduler.hpp"

namespace kvcast::serving {
namespace {

class StaticBatch final : public Scheduler {
 public:
  using Scheduler::Scheduler;

  void compose(Pass& pass) override {
    if (state_.running.empty()) form();
    read(pass);
    if (!pass.reads.empty()) return;
    for (QueuedRequest* entry : state_.running) {
      KVCAST_CHECK(state_.grow(*entry, entry->computed + 1));  // form() has made sure of the memory
      state_.advance(pass, *entry, 1);
    }
    pass.steady = pass.closed = true;
  }

  void finish(QueuedRequest&) override {}
  void drop_ended() override {
    if (!std::ranges::all_of(state_.running, &QueuedRequest::all_done)) return;
    for (QueuedRequest* entry : state_.running) {
      state_.release(*entry);
      entry->listed = false;
    }
    state_.running.clear();
  }

 private:
  bool possible(const QueuedRequest& entry) const override { return peak(entry, false) <= pool_.total(); }

  // The most blocks of a request in a batch whose longest answer has so many tokens.
  std::int64_t most_blocks(const QueuedRequest& entry, std::int64_t outputs) const {
    const std::int64_t prompt = entry.prompt(), last = last_length(entry) - entry.outputs() + outputs;
    return std::max(entry.footprint->reading(prompt), last > prompt ? entry.footprint->decoding(prompt, last) : 0);
  }

  void form() {
    std::int64_t outputs = 0;
    while (QueuedRequest* entry = head()) {
      if (static_cast<std::int64_t>(state_.running.size()) >= rules_.max_num_seqs) return;
      outputs = std::max(outputs, entry->outputs());
      std::int64_t blocks = most_blocks(*entry, outputs);
      for (const QueuedRequest* other : state_.running) blocks += most_blocks(*other, outputs);
      if (blocks > pool_.total() || !state_.host_fits(*entry)) return;
      admit_head(0);
    }
  }

  // Reads the next prompts within the budget of a pass.
  void read(Pass& pass) {
    std::int64_t budget = rules_.max_num_batched_tokens;
    for (QueuedRequest* entry : state_.running) {
      if (!entry->reading()) continue;
      const std::int64_t rest = entry->known - entry->computed;
      const std::int64_t tokens = whole() ? rest : std::min(rest, budget);
      if (tokens > budget && !pass.reads.empty()) return;
      if (tokens == 0 || !state_.grow(*entry, entry->computed + tokens)) return;
      state_.advance(pass, *entry, tokens);
      budget -= tokens;
      if (budget <= 0 || alone()) return;
    }
  }
};

}  // namespace

std::unique_ptr<Scheduler> make_static_batch(State& state) { return std::make_unique<StaticBatch>(state); }

}  // namespace kvcast::serving
