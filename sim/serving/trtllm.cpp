// TensorRT-LLM (capacityScheduler.cpp, microBatchScheduler.cpp): requests that fit are chosen in order of arrival, then
// those of them that run. No evict reserves all outputs; maximum utilisation takes memory as tokens need it and pauses
// the request that was started last. Blocks of a prompt can be found once all of it has been read, those of an answer
// once it ends (kvCacheManager.cpp); a request whose next block another one is computing waits for it.
#include <algorithm>
#include <limits>
#include <unordered_set>

#include "serving/scheduler.hpp"

namespace kvcast::serving {
namespace {

class Trtllm final : public Scheduler {
 public:
  using Scheduler::Scheduler;

  void compose(Pass& pass) override {
    generating_.clear();
    contexts_.clear();
    paused_ = false;
    head();
    computing_.clear();
    for (QueuedRequest* entry : state_.running) {
      if (entry->reading()) waits_for_block(*entry);
    }
    rules_.trtllm.max_utilisation ? choose_by_use() : choose_without_eviction();
    if (alone() && !contexts_.empty()) generating_.clear();
    run(pass);
    // Contexts that are chosen and do not run leave less to maximum utilisation than is free.
    const bool reserved = rules_.trtllm.max_utilisation && !contexts_.empty();
    pass.steady = pass.reads.empty() && !paused_ && !reserved && pass.decodes.size() == state_.running.size();
    // A short prompt that arrives can pass those that get no tokens, where prompts are cut.
    pass.closed = !state_.waiting.empty() && (!chunked() || contexts_.empty());
  }

  void has_read(QueuedRequest& entry) override {
    if (entry.known > 0) state_.name(entry, entry.known - 1);  // not the last, whatever it fills
    Scheduler::has_read(entry);
  }
  void finish(QueuedRequest& entry) override {
    if (entry.known > 0) state_.name(entry, entry.prompt() + entry.outputs() - 1);
    Scheduler::finish(entry);
  }

 private:
  // Notes the first full block of a prompt that no request has; true if another is computing it.
  bool waits_for_block(QueuedRequest& entry) {
    if (!entry.cached || !pool_.cached()) return false;
    const std::int64_t first = state_.find(entry).hit.blocks;
    if ((first + 1) * rules_.block > entry.target() - 1) return false;
    return !computing_.insert(entry.chain.at(first, entry.request, rules_.block)).second;
  }
  bool chunked() const { return rules_.trtllm.chunked_prefill && !whole(); }
  bool possible(const QueuedRequest& entry) const override {
    const bool again = rules_.trtllm.max_utilisation;
    return std::max(peak(entry, again), all_blocks(entry)) <= pool_.total() &&
           (chunked() || entry.prompt() <= rules_.max_num_batched_tokens);
  }
  // Requests that are there, or on their way here, are to end without eviction, as for contexts that are tried.
  bool room_for(QueuedRequest& entry, std::int64_t&) override {
    std::int64_t free = pool_.free(), here = 0;
    const auto reserve = [&](const QueuedRequest& e) {
      free -= std::max<std::int64_t>(0, all_blocks(e) - e.held.count);
      ++here;
    };
    for (const QueuedRequest* e : state_.running) reserve(*e);
    state_.for_each_to_run([&](const QueuedRequest* e) { reserve(*e); });
    const std::int64_t blocks = entry.footprint->decoding(entry.prompt(), entry.prompt() + entry.outputs());
    return here < rules_.max_num_seqs && blocks <= free && state_.host_fits(entry);
  }
  std::int64_t last_length(const QueuedRequest& entry) const override { return entry.prompt() + entry.outputs(); }

  // Blocks of a request with all its outputs.
  static std::int64_t all_blocks(const QueuedRequest& entry) {
    const std::int64_t known = entry.known > 0 ? entry.known : entry.prompt();
    const std::int64_t decoding = entry.footprint->decoding(known, entry.prompt() + entry.outputs());
    return entry.reading() || entry.known == 0 ? std::max(decoding, entry.footprint->reading(known)) : decoding;
  }
  std::int64_t chosen() const { return std::ssize(generating_) + std::ssize(contexts_); }
  bool none_left() const { return chosen() >= rules_.max_num_seqs; }
  void choose(QueuedRequest* entry) {
    (entry->known == 0 || entry->reading() ? contexts_ : generating_).push_back(entry);
  }

  // GUARANTEED_NO_EVICT: reserves for requests that generate, then for contexts in order until one does not fit.
  void choose_without_eviction() {
    std::int64_t free = pool_.free();
    for (const bool contexts : {false, true}) {
      for (QueuedRequest* entry : state_.running) {
        if (entry->reading() != contexts) continue;
        const std::int64_t rest = std::max<std::int64_t>(0, all_blocks(*entry) - entry->held.count);
        if (none_left() || rest > free) return;
        free -= rest;
        choose(entry);
      }
    }
    double host = 0;
    for (QueuedRequest* entry : state_.waiting) {
      if (possible_at_all(*entry) && waits_for_block(*entry)) continue;
      const std::int64_t blocks = all_blocks(*entry);
      if (none_left() || blocks > free || !state_.host_fits(*entry, host) || !possible_at_all(*entry)) return;
      free -= blocks;
      host += State::host_need(*entry);
      choose(entry);
      if (alone()) return;
    }
  }

  // MAX_UTILIZATION: what the next pass needs, in order of arrival. What is behind a paused request waits.
  void choose_by_use() {
    std::vector<QueuedRequest*> active(state_.running);
    const std::size_t most = rules_.max_num_seqs;
    for (std::size_t i = 0; i < state_.waiting.size() && i <= most; ++i) active.push_back(state_.waiting[i]);
    std::ranges::sort(active, {}, [](const QueuedRequest* entry) { return entry->request.id; });
    std::int64_t free = pool_.free();
    double host = 0;
    for (std::size_t i = 0; i < active.size();) {
      QueuedRequest* entry = active[i];
      const bool waits = entry->known == 0;
      if (waits && possible_at_all(*entry) && waits_for_block(*entry)) {
        ++i;
        continue;
      }
      if (none_left() || (waits && (!state_.host_fits(*entry, host) || !possible_at_all(*entry)))) return;
      std::int64_t lacking = 0;  // nothing between chunks: the prompt has its blocks
      if (waits) lacking = entry->footprint->reading(entry->target());
      if (!waits && !entry->reading()) lacking = State::need(*entry, entry->computed + 1) - entry->held.count;
      if (lacking <= free) {
        free -= std::max<std::int64_t>(0, lacking);
        if (waits) host += State::host_need(*entry);
        choose(entry);
        if (alone() && waits) return;
        ++i;
        continue;
      }
      std::size_t last = active.size();
      while (last > i && active[last - 1]->known == 0) --last;
      if (last == i) return;
      free += active[last - 1]->held.count;
      pause(*active[last - 1]);
      active.resize(last - 1);
    }
  }

  void pause(QueuedRequest& entry) {
    std::erase(state_.running, &entry);
    state_.release(entry);
    state_.preempted(entry);
    const auto place = std::ranges::lower_bound(state_.waiting, entry.request.id, {},
                                                [](const QueuedRequest* other) { return other->request.id; });
    state_.waiting.insert(place, &entry);
    paused_ = true;
  }

  std::int64_t length(QueuedRequest& entry) {
    const std::int64_t there = entry.known == 0 ? state_.find(entry).tokens : entry.computed;
    const std::int64_t rest = (entry.known == 0 ? entry.target() : entry.known) - there;
    // Outputs of a paused request are read with its prompt, which can exceed what a pass may have.
    return chunked() ? rest : std::min(rest, rules_.max_num_batched_tokens);
  }

  // Runs what fits the budget of tokens.
  void run(Pass& pass) {
    std::int64_t budget = rules_.max_num_batched_tokens;
    std::size_t decodes = std::min(generating_.size(), static_cast<std::size_t>(budget));
    std::size_t whole_contexts = 0;
    if (chunked()) {
      budget -= static_cast<std::int64_t>(decodes);
    } else if (rules_.trtllm.max_utilisation) {
      decodes = walk(budget, whole_contexts);
    } else {
      budget -= static_cast<std::int64_t>(decodes);
      while (whole_contexts < contexts_.size() && length(*contexts_[whole_contexts]) <= budget) {
        budget -= length(*contexts_[whole_contexts++]);
      }
    }
    for (std::size_t i = 0; i < decodes; ++i) {
      if (state_.grow(*generating_[i], generating_[i]->computed + 1)) state_.advance(pass, *generating_[i], 1);
    }
    for (std::size_t i = 0; i < whole_contexts; ++i)
      read(pass, *contexts_[i], std::numeric_limits<std::int64_t>::max());
    if (chunked()) read_chunks(pass, budget);
  }

  // Walks requests in order of arrival until one exceeds the budget; returns how many generate.
  std::size_t walk(std::int64_t budget, std::size_t& contexts) {
    std::size_t decodes = 0;
    while (decodes < generating_.size() || contexts < contexts_.size()) {
      const bool context =
          decodes == generating_.size() ||
          (contexts < contexts_.size() && contexts_[contexts]->request.id < generating_[decodes]->request.id);
      const std::int64_t tokens = context ? length(*contexts_[contexts]) : 1;
      if (tokens > budget) break;
      budget -= tokens;
      ++(context ? contexts : decodes);
    }
    return decodes;
  }

  void read_chunks(Pass& pass, std::int64_t budget) {
    const std::int64_t unit = rules_.trtllm.chunk_unit > 0 ? rules_.trtllm.chunk_unit : rules_.block;
    for (QueuedRequest* entry : contexts_) {
      std::int64_t tokens = length(*entry);
      if (tokens > budget) tokens = budget / unit * unit;
      if (tokens > 0) read(pass, *entry, tokens);
      budget -= tokens;
    }
  }

  void read(Pass& pass, QueuedRequest& entry, std::int64_t tokens) {
    if (entry.known == 0) {
      state_.waiting.erase(std::ranges::find(state_.waiting, &entry));
      const auto place = std::ranges::lower_bound(state_.running, entry.request.id, {},
                                                  [](const QueuedRequest* other) { return other->request.id; });
      state_.running.insert(place, &entry);
      const State::Found found = state_.find(entry);
      state_.start(entry, found.tokens);
      state_.share(entry, found);
      state_.grow(entry, entry.known);
    }
    state_.advance(pass, entry, std::min(tokens, entry.known - entry.computed));
  }

  std::vector<QueuedRequest*> generating_, contexts_;  // that fit, in order
  std::unordered_set<std::uint64_t> computing_;        // content of the blocks that each prompt computes next
  bool paused_ = false;
};

}  // namespace

std::unique_ptr<Scheduler> make_trtllm(State& state) { return std::make_unique<Trtllm>(state); }

}  // namespace kvcast::serving
