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
    preempted_ = soon_ = false;
    if (alone()) {
      admit(pass);
      if (!pass.reads.empty()) return;
    }
    const bool all = run(pass);
    if (!preempted_ && !alone()) admit(pass);
    pass.steady = all && pass.reads.empty() && !preempted_ && !soon_ && !head_follows_a_decode();
    pass.closed = !state_.waiting.empty();
  }

 private:
  // The queue is served in order, so that a preempted request comes first.
  bool room_for(QueuedRequest& entry, std::int64_t& there) override {
    if (!state_.waiting.empty() || std::ssize(state_.running) >= rules_.max_num_seqs) return false;
    const std::int64_t prompt = entry.prompt();
    Blocks::Hit hit;
    if (entry.cached)
      hit = pool_.find(entry.held, entry.chain, entry.request, rules_.block, (prompt - 1) / rules_.block);
    const std::int64_t lacking = entry.footprint->decoding(prompt, prompt) - hit.blocks + hit.unused;
    if (lacking + (state_.running.empty() ? 0 : watermark()) > pool_.free() || !state_.host_fits(entry)) return false;
    pool_.share(entry.held, entry.chain, entry.request, rules_.block, hit);
    there = hit.blocks * rules_.block;
    return true;
  }
  std::int64_t last_length(const QueuedRequest& entry) const override { return entry.prompt() + entry.outputs() - 1; }
  // Blocks of layers with a window that a request ever needs at a time: what it attends to, and the largest chunk.
  std::int64_t window_blocks() const {
    const std::int64_t most = whole() ? rules_.max_context : rules_.max_num_batched_tokens;
    return (rules_.windows.tokens - 1 + most + rules_.block - 1) / rules_.block + 1;
  }
  bool possible(const QueuedRequest& entry) const override {
    const WindowRules& windows = rules_.windows;
    const std::int64_t all = peak(entry, true), of_windows = std::min(all, window_blocks());
    return all * windows.others + of_windows * windows.groups <= pool_.total();
  }

  // The next chunk of a prompt of which `rest` tokens are left.
  std::int64_t chunk(std::int64_t rest) const {
    if (whole()) return rest;
    if (rules_.long_prefill_token_threshold > 0) rest = std::min(rest, rules_.long_prefill_token_threshold);
    return std::min(rest, budget_);
  }

  // Continues the running requests in order; false if the budget ends before they do.
  bool run(Pass& pass) {
    std::vector<QueuedRequest*>& running = state_.running;
    for (std::size_t i = 0; i < running.size(); ++i) {
      QueuedRequest& entry = *running[i];
      if (budget_ <= 0) return false;
      if (entry.all_sampled()) continue;  // its last token is in flight
      const std::int64_t tokens = entry.reading() ? chunk(entry.known - entry.computed) : 1;
      while (!state_.grow(entry, entry.computed + tokens)) {
        const bool itself = running.back() == &entry;
        // Without a cache of the GPU's, what it has read would be lost to those that wait with loaded blocks, for ever.
        if (running.size() == 1 && !rules_.prefix_caching && state_.unload()) continue;
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
    const std::deque<QueuedRequest*>& queue = rules_.role == Role::kDecode ? state_.remote : state_.waiting;
    if (queue.empty() || !queue.front()->cached) return false;
    for (const traffic::Segment& segment : queue.front()->request.content) {
      const auto answers = [&](const QueuedRequest* entry) { return entry->request.answer_key == segment.key; };
      if (segment.key != 0 && std::ranges::any_of(state_.running, answers)) return true;
    }
    return false;
  }

  void add(Pass& pass, QueuedRequest& entry, std::int64_t tokens) {
    state_.advance(pass, entry, tokens);
    budget_ -= tokens;
  }

  // Returns whether there is memory to admit, or load, a request that waits. `more` blocks are added to the free ones.
  bool fits(const QueuedRequest& entry, const State::Found& found, std::int64_t more = 0) const {
    const std::int64_t target = entry.target() - found.gone, cut = found.tokens + chunk(target - found.tokens);
    std::int64_t lacking = state_.lacking_beside(entry, found, cut);
    if (rules_.full_prompt_gate || found.loads > 0)
      lacking = std::max(lacking, state_.lacking_beside(entry, found, target, window_blocks()));
    if (found.loads > 0) lacking += state_.promised();
    return lacking + (state_.running.empty() ? 0 : watermark()) <= pool_.free() + more && state_.host_fits(entry);
  }

  // Blocks that the running requests may give back while they decode, at most: those that leave their windows.
  std::int64_t leaving() const {
    if (rules_.windows.groups == 0) return 0;
    std::int64_t blocks = 0;
    for (const QueuedRequest* entry : state_.running) {
      const std::int64_t held = entry->window.count - entry->window.dropped;
      blocks += std::max<std::int64_t>(0, held - rules_.windows.blocks(rules_.block)) * entry->window.per;
    }
    return blocks;
  }

  // Returns whether a request that does not fit may do so once running requests have decoded further. What it finds can
  // only get less by then, and takes at least nothing of the free blocks.
  bool may_fit_soon(const QueuedRequest& entry, State::Found found) const {
    if (fits(entry, found)) return false;
    found.hit.unused = found.window.unused = 0;
    return fits(entry, found, leaving());
  }

  void admit(Pass& pass) {
    while (QueuedRequest* entry = head()) {
      if (static_cast<std::int64_t>(state_.running.size()) >= rules_.max_num_seqs || budget_ <= 0) return;
      State::Found found = state_.find(*entry);
      soon_ = rules_.windows.groups > 0 && may_fit_soon(*entry, found);
      if (rules_.full_prompt_gate && !fits(*entry, found)) return;  // whatever lies behind
      state_.find_behind(*entry, found.tokens, found);
      const std::int64_t tokens = chunk(entry->target() - found.gone - found.tokens);
      if ((whole() && tokens > budget_ && !pass.reads.empty()) || !fits(*entry, found)) return;
      if (found.loads > 0 && rules_.blocking_copies) {
        pass.loaded += state_.link_bytes(found);
        pass.read = std::max(pass.read, state_.read_media(found));
      } else if (found.loads > 0) {  // others pass while it is loaded
        state_.load_head(found);
        continue;
      }
      state_.use(*entry, found);
      admit_head(found.tokens);
      state_.share(*entry, found);
      state_.grow(*entry, found.tokens + tokens);
      add(pass, *entry, tokens);
      if (alone()) return;
    }
  }

  std::int64_t budget_ = 0;
  bool preempted_ = false;
  bool soon_ = false;  // the head may fit without any request's end
};

}  // namespace

std::unique_ptr<Scheduler> make_vllm_v1(State& state) { return std::make_unique<VllmV1>(state); }

}  // namespace kvcast::serving
