#include "serving/state.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvcast::serving {

namespace {

constexpr std::int64_t kPiece = 16;  // least tokens of a block of the caches behind the GPU

}  // namespace

State::State(const Rules& given, const FootprintOf& footprint_of, Exit& exit, QueueObserver& observer)
    : rules(given),
      pool(given.blocks,
           given.prefix_caching && given.reuse == Reuse::kRadix &&
               (given.engine == Engine::kVllmV1 || given.engine == Engine::kTrtllm),
           given.write_back && !given.tiers.empty()),
      link(given.link),
      tiers(given.tiers, given.write_back, link),
      footprint_of_(footprint_of),
      exit_(exit),
      observer_(observer),
      piece_(given.engine == Engine::kVllmV1 ? given.block : given.block * ((kPiece + given.block - 1) / given.block)) {
}

void State::take_arrivals() {
  if (loading()) take_loaded();
  while (!arrivals.empty() && arrivals.front().at_engine() <= now) {
    QueuedRequest& entry = entries_.emplace_back();
    entry.self = std::prev(entries_.end());
    entry.request = std::move(arrivals.front());
    arrivals.pop_front();
    KVCAST_CHECK(entry.prompt() >= 1 && entry.outputs() >= 1);
    if (rules.role != Role::kDecode) entry.waits_since = entry.request.at_engine();
    entry.footprint = footprint_of_(entry.request);
    entry.held.per = rules.windows.others;
    entry.window.per = rules.windows.groups, entry.window.group = rules.windows.others;
    const bool all = entry.footprint->keeps_all(),
               radix = (rules.prefix_caching || !rules.tiers.empty()) && rules.reuse == Reuse::kRadix;
    entry.cached = radix && all;
    entry.offloaded = radix && !all && rules.host_copies;
    entry.chained = rules.prefix_caching && rules.reuse == Reuse::kChain;
    if (rules.engine == Engine::kSglang && rules.tiers.size() > 1 && radix) prefetch(entry);
    (rules.role == Role::kDecode ? remote : waiting).push_back(&entry);
  }
}

bool State::grow(QueuedRequest& entry, std::int64_t tokens) {
  if (rules.windows.groups > 0) pool.drop(entry.window, rules.windows.left(entry.computed, rules.block));
  if (lacking(entry, tokens) > pool.free()) return false;
  const std::int64_t all = need(entry, tokens) - entry.held.count, window = window_end(tokens) - entry.window.count;
  if (all > 0) take(entry.held, all);
  if (window > 0) take(entry.window, window);
  return true;
}

// Blocks of layers with a window up to a token, as if none had left it.
std::int64_t State::window_end(std::int64_t tokens) const {
  return rules.windows.groups == 0 ? 0 : (tokens + rules.block - 1) / rules.block;
}

std::int64_t State::lacking(const QueuedRequest& entry, std::int64_t tokens) const {
  return std::max<std::int64_t>(0, need(entry, tokens) - entry.held.count) * entry.held.per +
         std::max<std::int64_t>(0, window_end(tokens) - entry.window.count) * entry.window.per;
}

void State::start(QueuedRequest& entry, std::int64_t cached) {
  entry.computed = cached;
  entry.known = entry.target();
  entry.order = admitted_++;
  entry.host = host_need(entry);
  host_used_ += entry.host;
  entry.loaded = 0;
  if (entry.offloaded) tiers.limit(rules.tiers.front().bytes - host_used_);
  if (entry.outcome.preemptions == 0) entry.outcome.hit_tokens = cached + entry.gone;
  entry.outcome.recomputed_tokens += std::max<std::int64_t>(0, entry.lost - cached);
}

void State::expect(QueuedRequest& entry, std::int64_t there) {
  const bool again = entry.done > 0;
  // vLLM computes the last token again and samples the first output here; others get it with the cache.
  receive_all(entry, again ? entry.lost : entry.prompt() - (rules.engine == Engine::kVllmV1 ? 1 : 0));
  if (again) {
    delivered.push_back({&entry, now});
  } else {
    expected.push_back(&entry);
    exit_.reserved(entry.request, there, now);
  }
}

// Takes the memory of a cache that comes from elsewhere.
void State::receive_all(QueuedRequest& entry, std::int64_t computed) {
  start(entry, computed);
  entry.known = entry.prompt();
  entry.received = true;
  KVCAST_CHECK(grow(entry, entry.computed));
}

void State::stage(QueuedRequest& entry) {
  entry.staged = staging_need(entry);
  staged_used_ += entry.staged;
  expected.push_back(&entry);
  exit_.reserved(entry.request, 0, now);
}

void State::load_staged(QueuedRequest& entry, std::int64_t there) {
  const auto blocks = entry.footprint->decoding(entry.prompt(), entry.prompt()) - there / rules.block;
  receive_all(entry, entry.prompt() - (rules.engine == Engine::kVllmV1 ? 1 : 0));
  loading_.push_back({&entry, link.send_in(static_cast<double>(blocks) * rules.link_bytes), now});
}

void State::advance(Pass& pass, QueuedRequest& entry, std::int64_t tokens) {
  const bool reads = entry.reading(), was_all = entry.all_sampled();
  if (reads) pass.reads.push_back({&entry, {entry.computed, tokens, entry.known}});
  if (!reads) (was_all ? pass.padding : pass.decodes).push_back(&entry);
  entry.computed += tokens;
  if (!entry.reading() && !was_all) ++entry.sampled;
  name_blocks(entry, 0);
  if (reads && entry.cached && !rules.write_back) store(entry, std::min(entry.computed, entry.prompt()));
}

void State::repeat(const Pass& pass, std::int64_t times, bool result) {
  if (times == 0) return;
  // Blocks that leave a window join the free ones pass by pass.
  const std::int64_t step = rules.windows.groups > 0 ? 1 : times;
  for (std::int64_t done = step; done <= times; done += step) {
    for (const std::vector<QueuedRequest*>* list : {&pass.decodes, &pass.padding}) {
      for (QueuedRequest* entry : *list) {
        KVCAST_CHECK(grow(*entry, entry->computed + step));
        entry->computed += step;
        if (list == &pass.decodes) entry->sampled += step;
        name_blocks(*entry, done - (result ? 1 : 0));
      }
    }
  }
}

// Enters full blocks of tokens that are known when the pass is composed, `further` results after the present ones.
void State::name_blocks(QueuedRequest& entry, std::int64_t further) {
  if (rules.engine == Engine::kVllmV1) name(entry, std::min(entry.computed, entry.prompt() + entry.done + further));
}

// Blocks of its own content are looked for by the request alone, once it has lost them: they get their names then.
// Names of blocks that are told when they are lost, or leave a window before, cannot wait.
void State::name(QueuedRequest& entry, std::int64_t tokens) {
  if (!entry.cached || !pool.cached()) return;
  entry.named = std::max(entry.named, tokens);
  const bool all = rules.windows.groups > 0 || rules.write_back;
  name_full(entry, all ? entry.named : std::min(entry.named, shareable(entry.request)));
}

void State::name_full(QueuedRequest& entry, std::int64_t tokens) {
  pool.name(entry.held, entry.chain, entry.request, rules.block, tokens / rules.block);
  pool.name(entry.window, entry.chain, entry.request, rules.block, tokens / rules.block);
}

void State::preempted(QueuedRequest& entry) {
  observer_.preempted(entry.request, now);
  ++entry.outcome.preemptions;
  entry.waits_since = std::max(now, entry.busy_until);
  entry.lost = entry.computed;
  entry.computed = entry.known = entry.loaded = entry.gone = 0;
  entry.received = false;
}

void State::release(QueuedRequest& entry) {
  if (!entry.all_done()) name_full(entry, entry.named);
  entry.named = 0;
  pool.give_back(entry.window, 0);
  pool.give_back(entry.held, 0);
  give_host_back(entry);
  give_staging_back(entry);
}

void State::give_staging_back(QueuedRequest& entry) {
  staged_used_ -= entry.staged;
  entry.staged = 0;
}

void State::give_host_back(QueuedRequest& entry) {
  host_used_ -= entry.host;
  entry.host = 0;
  if (entry.offloaded) tiers.limit(rules.tiers.front().bytes - host_used_);
}

void State::leave(QueuedRequest& entry) {
  entry.outcome.request = entry.request;
  entry.outcome.last_token = now;
  --in_service;
  exit_.left(entry.outcome, now);
}

void State::withdraw(QueuedRequest& entry) {
  const auto at = std::find(waiting.begin(), waiting.end(), &entry);
  KVCAST_CHECK(at != waiting.end());
  waiting.erase(at);
  entry.listed = false;
}

}  // namespace kvcast::serving
