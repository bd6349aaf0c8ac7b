// vLLM V1 (v1/core/sched/scheduler.py, kv_cache_manager.py): decodes and chunks of prompts share a budget of tokens,
// and memory is taken as tokens need it; what is short is taken from the request that was admitted last.
#include <algorithm>

#include "serving/scheduler.hpp"

namespace kvcast::serving {
namespace {

class VllmV1 final : public Scheduler {
 public:
  using Scheduler::Scheduler;

  void compose(Pass& pass) override {
    budget_ = rules_.max_num_batched_tokens;
    preempted_ = false;
    if (alone()) {
      admit(pass);
      if (!pass.reads.empty()) return;
    }
    const bool all = run(pass);
    if (!preempted_ && !alone()) admit(pass);
    pass.steady = all && pass.reads.empty() && !preempted_ && !head_follows_a_decode();
    pass.closed = !state_.waiting.empty();
  }

 private:
  // The queue is served in order, so that a preempted request comes first.
  bool room_for(Entry& entry, std::int64_t& there) override {
    if (!state_.waiting.empty() || std::ssize(state_.running) >= rules_.max_num_seqs) return false;
    const std::int64_t prompt = entry.prompt();
    Blocks::Hit hit;
    if (entry.cached) hit = pool_.find(entry.chain, entry.request, rules_.block, (prompt - 1) / rules_.block);
    const std::int64_t lacking = entry.footprint->decoding(prompt, prompt) - hit.blocks + hit.unused;
    if (lacking + (state_.running.empty() ? 0 : watermark()) > pool_.free() || !state_.host_fits(entry)) return false;
    pool_.share(entry.held, entry.chain, entry.request, rules_.block, hit.blocks);
    there = hit.blocks * rules_.block;
    return true;
  }
  std::int64_t last_length(const Entry& entry) const override { return entry.prompt() + entry.outputs() - 1; }

  // The next chunk of a prompt of which `rest` tokens are left.
  std::int64_t chunk(std::int64_t rest) const {
    if (whole()) return rest;
    if (rules_.long_prefill_token_threshold > 0) rest = std::min(rest, rules_.long_prefill_token_threshold);
    return std::min(rest, budget_);
  }

  // Continues the running requests in order; false if the budget ends before they do.
  bool run(Pass& pass) {
    std::vector<Entry*>& running = state_.running;
    for (std::size_t i = 0; i < running.size(); ++i) {
      Entry& entry = *running[i];
      if (budget_ <= 0) return false;
      if (entry.all_sampled()) continue;  // its last token is in flight
      const std::int64_t tokens = entry.reading() ? chunk(entry.known - entry.computed) : 1;
      while (!state_.grow(entry, entry.computed + tokens)) {
        const bool itself = running.back() == &entry;
        preempt_tail();
        preempted_ = true;
        if (itself) return false;
      }
      add(pass, entry, tokens);
    }
    return true;
  }

  // Returns whether the request at the head may find blocks of answers that are not complete yet: a later turn whose
  // time of arrival does not depend on the answer before.
  bool head_follows_a_decode() const {
    const std::deque<Entry*>& queue = rules_.role == Role::kDecode ? state_.remote : state_.waiting;
    if (queue.empty() || !queue.front()->cached) return false;
    for (const traffic::Segment& segment : queue.front()->request.content) {
      const auto answers = [&](const Entry* entry) { return entry->request.answer_key == segment.key; };
      if (segment.key != 0 && std::ranges::any_of(state_.running, answers)) return true;
    }
    return false;
  }

  void add(Pass& pass, Entry& entry, std::int64_t tokens) {
    state_.advance(pass, entry, tokens);
    budget_ -= tokens;
  }

  // Returns whether there is memory to admit, or load, a request that waits.
  bool fits(const Entry& entry, const State::Found& found) const {
    const std::int64_t target = entry.target() - found.gone, cut = found.tokens + chunk(target - found.tokens);
    const std::int64_t first = rules_.full_prompt_gate || found.loads > 0 ? target : cut;
    std::int64_t lacking = entry.footprint->reading(first) - entry.held.count - found.hit.blocks + found.hit.unused;
    if (found.loads > 0) lacking += state_.promised();
    return lacking + (state_.running.empty() ? 0 : watermark()) <= pool_.free() && state_.host_fits(entry);
  }

  void admit(Pass& pass) {
    while (Entry* entry = head()) {
      if (static_cast<std::int64_t>(state_.running.size()) >= rules_.max_num_seqs || budget_ <= 0) return;
      State::Found found = state_.find(*entry);
      if (rules_.full_prompt_gate && !fits(*entry, found)) return;  // whatever lies behind
      state_.find_behind(*entry, found.tokens, found);
      const std::int64_t tokens = chunk(entry->target() - found.gone - found.tokens);
      if ((whole() && tokens > budget_ && !pass.reads.empty()) || !fits(*entry, found)) return;
      if (found.loads > 0) {  // others pass while it is loaded
        state_.load_head(found);
        continue;
      }
      state_.use(*entry, found);
      admit_head(found.tokens);
      if (found.hit.blocks > 0) pool_.share(entry->held, entry->chain, entry->request, rules_.block, found.hit.blocks);
      state_.grow(*entry, found.tokens + tokens);
      add(pass, *entry, tokens);
      if (alone()) return;
    }
  }

  std::int64_t budget_ = 0;
  bool preempted_ = false;
};

}  // namespace

std::unique_ptr<Scheduler> make_vllm_v1(State& state) { return std::make_unique<VllmV1>(state); }

}  // namespace kvcast::serving
