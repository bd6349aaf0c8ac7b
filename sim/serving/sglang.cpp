// SGLang (managers/scheduler.py, schedule_policy.py, schedule_batch.py): a pass reads prompts, up to one chunk in all,
// or decodes. A request is admitted if its prompt and all its outputs fit into what is left after a part of the outputs
// of the running ones; where that was too little, those with the fewest outputs are retracted.
#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "serving/radix_tree.hpp"
#include "serving/scheduler.hpp"

namespace kvcast::serving {
namespace {

constexpr std::int64_t kClip = 4096;         // outputs that are reserved at most (CLIP_MAX_NEW_TOKENS)
constexpr std::int64_t kRetractTokens = 20;  // a sequence, made free at a retraction (retract_decode_steps)
constexpr std::int64_t kReserved = 512;      // tokens a request that only decodes (num_reserved_decode_tokens)

class Sglang final : public Scheduler {
 public:
  explicit Sglang(State& state) : Scheduler(state), own_(state.rules.sglang), page_(state.rules.block), tree_(page_) {
    reset_ratio();
  }

  void compose(Pass& pass) override {
    do {
      merge();
    } while (!prefill(pass) && decode(pass));
    if (pass.empty()) reset_ratio();
  }
  void repeated(std::int64_t times) override { decays_ += times; }

  void has_read(QueuedRequest& entry) override {
    if (entry.known == 0) return;
    if (entry.cached) return enter(entry, entry.known);
    Scheduler::has_read(entry);
  }
  void finish(QueuedRequest& entry) override {
    state_.keep(entry);
    if (entry.known > 0 && entry.cached) enter(entry, entry.prompt() + entry.outputs() - 1);
    let_go(entry);
  }
  void drop_ended() override {}  // the next decode pass does
  std::int64_t used() const override { return pool_.total() - pool_.free() - tree_.evictable() / page_; }
  std::int64_t running() const override {
    return Scheduler::running() + std::ssize(last_) + (partial_ != nullptr && last_.empty() ? 1 : 0);
  }

 private:
  enum class Added { kYes, kNoToken, kOther };

  // Tokens that a pass may still add.
  struct Budget {
    double reserved = 0;        // of all memory, for what runs and what was added
    std::int64_t extended = 0;  // of it, the tokens that are read in this pass
    std::int64_t input = 0, chunk = 0;
  };

  std::int64_t whole_pages(std::int64_t tokens) const { return (tokens + page_ - 1) / page_ * page_; }
  std::int64_t available() const { return pool_.free() * page_ + tree_.evictable(); }
  double rest(const Budget& budget) const { return static_cast<double>(available()) - budget.reserved; }
  std::int64_t margin() const { return own_.page_margin ? page_ : 0; }

  void reset_ratio() {
    base_ = own_.ratio;
    decays_ = 0;
  }
  double ratio() const {
    const double floor = own_.ratio_floor * own_.ratio;
    const double lost = static_cast<double>(decays_) * (own_.ratio - floor) / static_cast<double>(own_.ratio_steps);
    return decays_ == 0 ? base_ : std::max(base_ - lost, floor);
  }

  // Memory of a request from which `tokens` have been read and `outputs` follow.
  std::int64_t memory(const QueuedRequest& entry, std::int64_t tokens, std::int64_t outputs) const {
    if (entry.footprint->keeps_all()) return tokens + outputs;
    const Footprint& footprint = *entry.footprint;
    return std::max(footprint.reading(tokens), footprint.decoding(tokens, tokens + outputs)) * page_;
  }
  bool possible(const QueuedRequest& entry) const override {
    const std::int64_t prompt = entry.prompt(), outputs = entry.outputs(), total = pool_.total() * page_;
    if (rules_.role == Role::kDecode && memory(entry, prompt, outputs) + kReserved > total) return false;
    return std::max(memory(entry, prompt, outputs), memory(entry, prompt + outputs - 1, 1)) + margin() < total &&
           peak(entry, true) <= pool_.total();
  }

  // Moves what the last pass has read to those that decode, except for a prompt of which a part is left.
  void merge() {
    for (QueuedRequest* entry : last_) {
      if (entry->all_done() || entry == partial_) full_ = false;
      if (entry == partial_) {
        if (entry->cached) enter(*entry, entry->computed);
      } else if (entry->all_done()) {
        entry->listed = false;
      } else if (entry->known > 0) {
        state_.running.push_back(entry);
      }
    }
    last_.clear();
  }

  // Hands the first tokens of a request to the tree; those that it has already are freed.
  void enter(QueuedRequest& entry, std::int64_t tokens) {
    tokens = tokens / page_ * page_;
    const RadixTree::Match there = tree_.insert(pieces(entry.request, tokens));
    pool_.add_free((there.tokens - entry.shared) / page_);
    tree_.lock(there.node);
    if (entry.node >= 0) tree_.unlock(entry.node);
    entry.node = there.node;
    entry.shared = tokens;
  }

  // Frees what only this request has; what is in the tree stays there.
  void let_go(QueuedRequest& entry) {
    if (entry.node >= 0) tree_.unlock(entry.node);
    entry.held.count -= entry.shared / page_;
    entry.node = -1;
    entry.shared = 0;
    state_.release(entry);
  }

  void evict_for(std::int64_t blocks) {
    if (pool_.free() < blocks) evict(blocks * page_);
  }
  void evict(std::int64_t tokens) { pool_.add_free(tree_.evict(tokens) / page_); }

  bool prefill(Pass& pass);
  void read_on(Budget& budget);
  Added add(Budget& budget);
  void charge(Budget& budget, const QueuedRequest& entry, std::int64_t tokens, std::int64_t loads,
              std::int64_t outputs) const;
  Added judge(const Budget& budget) const;
  void mix(Pass& pass);
  void sort_by_prefix();
  bool decode(Pass& pass);
  std::int64_t lacking(std::int64_t steps) const;
  void retract();
  void retract_last();
  bool room_for(QueuedRequest& entry, std::int64_t& there) override;

  const SglangRules& own_;
  std::int64_t page_;
  RadixTree tree_;
  std::vector<QueuedRequest*> last_;  // of the last pass, if it read prompts
  QueuedRequest* partial_ = nullptr;  // a prompt of which a part has been read
  bool full_ = false;                 // no prompt is tried
  double base_ = 0;                   // ratio of new tokens before its decay
  std::int64_t decays_ = 0;
  std::vector<std::pair<QueuedRequest*, std::int64_t>> added_;  // in this pass, and their tokens
  double loaded_ = 0;                                           // bytes that are loaded in it
};

bool Sglang::prefill(Pass& pass) {
  if ((full_ || state_.waiting.empty()) && partial_ == nullptr) return false;
  const std::int64_t slots = rules_.max_num_seqs - std::ssize(state_.running);
  if (slots <= 0 && partial_ == nullptr) {
    full_ = own_.full_flag;
    return false;
  }
  if (own_.longest_prefix_first) sort_by_prefix();
  added_.clear();
  const std::int64_t joining = own_.mixed_chunk && !alone() ? std::ssize(state_.running) : 0;
  Budget budget{static_cast<double>(joining), joining, own_.max_prefill_tokens - joining,
                (whole() ? std::numeric_limits<std::int64_t>::max() / 4 : rules_.max_num_batched_tokens) - joining};
  for (const QueuedRequest* entry : state_.running) {
    const std::int64_t outputs = std::min(entry->outputs() - entry->done, kClip);
    const std::int64_t more = entry->footprint->keeps_all()
                                  ? outputs
                                  : (State::need(*entry, entry->computed + outputs) - entry->held.count) * page_;
    budget.reserved += static_cast<double>(std::max<std::int64_t>(0, more)) * ratio();
  }
  if (partial_ != nullptr) {
    read_on(budget);
    if (added_.empty()) return false;
  }
  while (head() != nullptr) {
    const bool slot = std::ssize(added_) < slots;
    const Added result = slot ? add(budget) : Added::kNoToken;
    if (result == Added::kNoToken) full_ = own_.full_flag;
    if (result != Added::kYes || alone()) break;
  }
  if (added_.empty()) return false;
  std::int64_t blocks = 0;
  for (const auto& [entry, tokens] : added_)
    blocks += State::need(*entry, entry->computed + tokens) - entry->held.count;
  evict_for(blocks);
  for (const auto& [entry, tokens] : added_) {
    KVCAST_CHECK(state_.grow(*entry, entry->computed + tokens));
    state_.advance(pass, *entry, tokens);
    last_.push_back(entry);
  }
  pass.loaded = std::exchange(loaded_, 0);
  if (joining > 0) mix(pass);
  return true;
}

// Continues the prompt of which a part has been read, as far as there is memory.
void Sglang::read_on(Budget& budget) {
  QueuedRequest& entry = *partial_;
  const std::int64_t left = entry.known - entry.computed;
  const auto room = static_cast<std::int64_t>(rest(budget));
  std::int64_t tokens = std::min({left, budget.chunk, room > 0 ? room : budget.chunk});
  const auto fits = [&](std::int64_t more) {
    return (State::need(entry, entry.computed + more) - entry.held.count) * page_ <= available() - budget.extended;
  };
  while (tokens > 0 && !fits(tokens)) --tokens;
  if (tokens <= 0) return;
  const bool ends = tokens == left;
  added_.emplace_back(&entry, tokens);
  charge(budget, entry, tokens, 0, ends ? std::min(entry.outputs(), kClip) : 0);
  if (ends) partial_ = nullptr;
}

// Takes tokens that are read or loaded, and outputs that are reserved, out of the budget.
void Sglang::charge(Budget& budget, const QueuedRequest& entry, std::int64_t tokens, std::int64_t loads,
                    std::int64_t outputs) const {
  const bool all = entry.footprint->keeps_all();
  const std::int64_t to = entry.computed + tokens;
  const std::int64_t read = all ? whole_pages(tokens + loads) : (State::need(entry, to) - entry.held.count) * page_;
  const std::int64_t later = all ? outputs : std::max<std::int64_t>(0, memory(entry, to, outputs) - read);
  budget.reserved += static_cast<double>(read + (outputs > 0 ? later : 0) + margin());
  budget.extended += read + margin();
  budget.input -= whole_pages(tokens), budget.chunk -= whole_pages(tokens);
}

Sglang::Added Sglang::judge(const Budget& budget) const {
  if (rest(budget) <= 0 || available() - budget.extended <= 0) return Added::kNoToken;
  return budget.input <= 0 || budget.chunk <= 0 ? Added::kOther : Added::kYes;
}

// Tries the head of the queue.
Sglang::Added Sglang::add(Budget& budget) {
  QueuedRequest& entry = *state_.waiting.front();
  RadixTree::Match hit;
  if (entry.cached) hit = tree_.match(pieces(entry.request, (entry.target() - 1) / page_ * page_));
  State::Found found = state_.find(entry);
  if (entry.cached) found.tokens = hit.tokens;
  state_.find_behind(entry, hit.tokens, found);
  const std::int64_t target = entry.target() - found.gone;
  // All outputs are reserved for it again after a retraction, which nothing but an empty engine could satisfy for ever.
  const bool first = added_.empty() && state_.running.empty();
  const std::int64_t made = own_.page_margin || first ? entry.done : 0;
  const std::int64_t outputs = std::min(entry.outputs() - made, kClip), tokens = target - found.tokens;
  const auto total = static_cast<double>(memory(entry, target, outputs) - hit.tokens + margin());
  if (total >= rest(budget) || !state_.host_fits(entry)) return Added::kNoToken;
  if (whole_pages(tokens) >= budget.input && !added_.empty()) return Added::kOther;
  tree_.lock(hit.node);
  std::int64_t chunk = tokens;
  if (whole_pages(tokens) > budget.chunk) chunk = budget.chunk / page_ * page_;
  if (total >= rest(budget) || chunk <= 0) {
    const bool room = total < rest(budget);
    tree_.unlock(hit.node);
    return room ? Added::kOther : Added::kNoToken;
  }
  state_.waiting.pop_front();
  state_.use(entry, found);
  state_.start(entry, found.tokens);
  loaded_ += state_.link_bytes(found);
  entry.held.count = hit.tokens / page_;
  entry.shared = hit.tokens;
  entry.node = entry.cached ? hit.node : -1;
  charge(budget, entry, chunk, found.loads, chunk == tokens ? outputs : 0);
  added_.emplace_back(&entry, chunk);
  if (chunk < tokens) partial_ = &entry;
  return judge(budget);
}

// Lets the decodes join a pass that reads; they count as its sequences then.
void Sglang::mix(Pass& pass) {
  for (QueuedRequest* entry : state_.running) {
    if (entry->all_done()) {
      entry->listed = false;
      continue;
    }
    evict_for(State::need(*entry, entry->computed + 1) - entry->held.count);
    if (state_.grow(*entry, entry->computed + 1)) state_.advance(pass, *entry, 1);
    last_.push_back(entry);
  }
  state_.running.clear();
}

// Longest match first. A request that has a short one, but shares more with one before it in the queue, comes last.
void Sglang::sort_by_prefix() {
  constexpr std::size_t kMost = 128;
  constexpr std::int64_t kShort = 32, kLast = -1;
  if (state_.waiting.size() > kMost) return;
  RadixTree queued(page_);
  std::vector<std::pair<std::int64_t, QueuedRequest*>> order;
  for (QueuedRequest* entry : state_.waiting) {
    const std::vector<Piece> content = pieces(entry->request, (entry->target() - 1) / page_ * page_);
    std::int64_t tokens = entry->cached ? tree_.match(content).tokens : 0;
    if (tokens <= kShort && entry->cached) {
      if (queued.match(content).tokens > kShort) {
        tokens = kLast;
      } else {
        queued.insert(content);
      }
    }
    order.emplace_back(tokens, entry);
  }
  std::ranges::stable_sort(order, std::greater<>(), &std::pair<std::int64_t, QueuedRequest*>::first);
  std::ranges::transform(order, state_.waiting.begin(), &std::pair<std::int64_t, QueuedRequest*>::second);
}

// Decodes all running requests; true if there is no pass, but another attempt may find one.
bool Sglang::decode(Pass& pass) {
  const std::size_t before = state_.running.size();
  Scheduler::drop_ended();
  if (state_.running.size() < before) full_ = false;
  if (state_.running.empty()) {
    full_ = false;
    if (before > 0) reset_ratio();
    return before > 0;
  }
  evict_for(lacking(1));
  const bool retracts = pool_.free() < lacking(1);
  if (retracts) {
    retract();
  } else {
    ++decays_;
  }
  if (pool_.free() < lacking(1)) {  // a prompt that is being read has the memory of the last one
    QueuedRequest* const victim = state_.running.back();
    retract_last();
    return victim->in_flight == 0;  // else its result comes first
  }
  for (QueuedRequest* entry : state_.running) {
    state_.grow(*entry, entry->computed + 1);
    state_.advance(pass, *entry, 1);
  }
  // More may be retracted as more is held, so that a cache that waits for memory may get it in any pass.
  pass.steady = !retracts && partial_ == nullptr && (full_ || state_.waiting.empty()) && state_.remote.empty() &&
                state_.staged.empty();
  pass.closed = full_;
  return false;
}

// Blocks that the running requests lack for further decodes.
std::int64_t Sglang::lacking(std::int64_t steps) const {
  if (steps == kRetractTokens) return whole_pages(steps * std::ssize(state_.running)) / page_;
  std::int64_t blocks = 0;
  for (const QueuedRequest* entry : state_.running) {
    blocks += std::max<std::int64_t>(0, State::need(*entry, entry->computed + steps) - entry->held.count);
  }
  return blocks;
}

void Sglang::retract_last() {
  QueuedRequest& victim = *state_.running.back();
  state_.running.pop_back();
  let_go(victim);
  state_.preempted(victim);
  if (rules_.role != Role::kDecode) return state_.waiting.push_back(&victim);
  // Its cache waits in host memory, before all that come from elsewhere.
  const auto behind = std::ranges::find_if(state_.remote, [](const QueuedRequest* entry) { return entry->done == 0; });
  state_.remote.insert(behind, &victim);
}

// disaggregation/decode.py, pop_preallocated and _allocatable_tokens.
bool Sglang::room_for(QueuedRequest& entry, std::int64_t&) {
  const auto cache = [&](const QueuedRequest& e, std::int64_t outputs) {
    const std::int64_t prompt = e.prompt();
    return e.footprint->keeps_all() ? prompt + outputs : e.footprint->decoding(prompt, prompt + outputs) * page_;
  };
  const auto with_outputs = [&](const QueuedRequest& e) { return cache(e, std::min(e.outputs(), kClip)); };
  std::int64_t retractable = 0, largest = 0, here = std::ssize(state_.running);
  for (const QueuedRequest* e : state_.running)
    retractable += e->held.count * page_, largest = std::max(largest, with_outputs(*e));
  state_.for_each_to_run([&](const QueuedRequest*) { ++here; });
  const std::int64_t rest = available() - std::max(kReserved * here, largest - retractable);
  if (here >= rules_.max_num_seqs || !state_.host_fits(entry)) return false;
  return cache(entry, entry.done) + kReserved <= rest && (entry.done > 0 || with_outputs(entry) - retractable <= rest);
}

void Sglang::retract() {
  std::ranges::stable_sort(state_.running, [](const QueuedRequest* a, const QueuedRequest* b) {
    return a->done != b->done ? a->done > b->done : a->prompt() < b->prompt();
  });
  bool first = true;
  while (state_.running.size() > 1 && (first || pool_.free() < lacking(own_.retract_steps))) {
    first = false;
    retract_last();
    evict_for(whole_pages(kRetractTokens * std::ssize(state_.running)) / page_);
  }
  std::int64_t made = 0, wanted = 0;
  for (const QueuedRequest* entry : state_.running) {
    made += entry->done + kRetractTokens;
    wanted += entry->outputs();
  }
  base_ = std::min(1.0, static_cast<double>(made) / static_cast<double>(wanted));
  decays_ = 0;
  full_ = false;
}

}  // namespace

std::unique_ptr<Scheduler> make_sglang(State& state) { return std::make_unique<Sglang>(state); }

}  // namespace kvcast::serving
