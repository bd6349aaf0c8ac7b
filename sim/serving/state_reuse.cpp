// Requests find content of earlier ones and leave their own: in the pool, behind it, and on the way between the two.
#include <algorithm>

#include "base/error.hpp"
#include "serving/state.hpp"

namespace kvcast::serving {

void State::idle_until(Picoseconds time) {
  if (time <= now) return;
  link.pass(time - now, 0);
  now = time;
}

State::Found State::find(QueuedRequest& entry) {
  Found found;
  if (entry.loaded > 0) {
    found.tokens = entry.loaded;
    return found;
  }
  if (entry.chained) {
    find_kept(entry, found);
    return found;
  }
  if (!entry.cached || !pool.cached()) return found;
  // At least one token is computed.
  found.hit = pool.find(entry.held, entry.chain, entry.request, rules.block, (entry.target() - 1) / rules.block);
  if (rules.windows.groups > 0) {
    // Layers that keep all tokens have no more than those with a window.
    const std::int64_t needed = rules.windows.blocks(rules.block), most = found.hit.blocks;
    found.window = pool.find(entry.window, entry.chain, entry.request, rules.block, most, needed);
    if (found.window.blocks < most)
      found.hit = pool.find(entry.held, entry.chain, entry.request, rules.block, found.window.blocks);
  }
  found.tokens = found.hit.blocks * rules.block;
  return found;
}

void State::find_behind(QueuedRequest& entry, std::int64_t there, Found& found) {
  if (entry.loaded > 0 || !tiers.any() || (!entry.cached && !entry.offloaded)) return;
  const std::int64_t most = entry.target() - 1;
  for (std::int64_t i = there / piece_; (i + 1) * piece_ <= most; ++i) {
    const int level = tiers.find(entry.chain.at(i, entry.request, piece_), now);
    if (level == Tiers::kNone || (rules.engine == Engine::kSglang && level > 0)) break;
    found.tokens = (i + 1) * piece_;
    found.bytes[level] += rules.stored_bytes * blocks_of_piece();
  }
  found.loads = found.tokens - there;
}

// The longest sequence of which something is kept, and that the request continues.
void State::find_kept(QueuedRequest& entry, Found& found) {
  if (chains_.empty() && !tiers.any()) return;
  // A sequence ended before a part of the prompt begins, or one token before.
  std::int64_t end = 0;
  ends_.clear();
  for (const traffic::Segment& segment : entry.request.content) {
    end += segment.tokens;
    for (const std::int64_t tokens : {end - 1, end}) {
      const std::int64_t blocks = std::min(tokens, entry.target() - 1) / rules.block;
      if (blocks > 0 && (ends_.empty() || ends_.back() < blocks)) ends_.push_back(blocks);
    }
  }
  while (!ends_.empty() && !continues(entry, ends_.back(), found)) ends_.pop_back();
}

// Returns whether something is kept of the sequence that has these leading blocks.
bool State::continues(QueuedRequest& entry, std::int64_t blocks, Found& found) {
  const Chains::Key key = entry.chain.at(blocks - 1, entry.request, rules.block);
  const Kept* const in_pool = chains_.find(key);
  Kept there;
  const int level = in_pool == nullptr ? tiers.find(key, now, &there) : Tiers::kNone;
  if (in_pool != nullptr) there = *in_pool;
  if ((in_pool == nullptr && level == Tiers::kNone) || there.tokens >= entry.target()) return false;
  found.tokens = std::min(there.held, there.tokens);
  found.gone = there.tokens - found.tokens;
  found.kept = key;
  if (level == Tiers::kNone) return true;
  found.loads = found.tokens;
  found.bytes[static_cast<std::size_t>(level)] = static_cast<double>(there.blocks) * rules.stored_bytes;
  return true;
}

std::int64_t State::lacking_beside(const QueuedRequest& entry, const Found& found, std::int64_t tokens,
                                   std::int64_t most) const {
  const std::int64_t all = entry.footprint->reading(tokens) - entry.held.count - found.hit.blocks;
  const std::int64_t window = std::max<std::int64_t>(0, std::min(window_end(tokens), most) - found.window.blocks);
  return all * entry.held.per + found.hit.unused + window * entry.window.per + found.window.unused;
}

void State::share(QueuedRequest& entry, const Found& found) {
  if (found.hit.blocks > 0) pool.share(entry.held, entry.chain, entry.request, rules.block, found.hit);
  if (found.window.blocks > 0) pool.share(entry.window, entry.chain, entry.request, rules.block, found.window);
}

void State::use(QueuedRequest& entry, const Found& found) {
  entry.gone = found.gone + entry.gone;
  if (found.kept) {
    chains_.take(*found.kept);
    tiers.erase(*found.kept);
  }
  if (found.loads == 0) return;
  entry.outcome.loaded_tokens += found.loads + (found.kept ? found.gone : 0);
  if (found.kept) return;
  touch(entry, found.tokens);
}

Picoseconds State::read_media(const Found& found) {
  Picoseconds read = now;
  for (std::size_t level = 0; level < rules.tiers.size(); ++level) {
    if (found.bytes[level] > 0) read = std::max(read, tiers.read(static_cast<int>(level), found.bytes[level], now));
  }
  return read;
}

void State::load_head(const Found& found) {
  QueuedRequest& entry = *waiting.front();
  waiting.pop_front();
  use(entry, found);
  share(entry, found);
  take(entry.held, std::max<std::int64_t>(0, entry.footprint->reading(found.tokens) - entry.held.count));
  entry.loaded = found.tokens;
  const Picoseconds read = read_media(found);
  loading_.push_back({&entry, link.send_in(link_bytes(found)), read});
}

Picoseconds State::next_loaded() const {
  Picoseconds first = traffic::kNever;
  for (const Load& load : loading_)
    first = std::min(first, std::max(load.not_before, now + link.until_in(load.position)));
  return first;
}

void State::take_loaded() {
  const auto done = std::stable_partition(loading_.begin(), loading_.end(), [&](const Load& load) {
    return load.not_before > now || !link.is_in(load.position);
  });
  for (auto load = loading_.end(); load-- != done;) {
    QueuedRequest& entry = *load->entry;
    if (entry.received) continue;
    waiting.push_front(&entry);
    name(entry, entry.loaded);
  }
  for (auto load = done; load != loading_.end(); ++load) {
    if (!load->entry->received) continue;
    give_staging_back(*load->entry);
    delivered.push_back({load->entry, now});
  }
  loading_.erase(done, loading_.end());
}

std::int64_t State::promised() const {
  std::int64_t blocks = 0;
  const auto add = [&](const QueuedRequest& entry) {
    blocks += std::max<std::int64_t>(0, entry.footprint->reading(entry.target()) - entry.held.count);
  };
  for (const Load& load : loading_) add(*load.entry);
  for (const QueuedRequest* entry : waiting) {
    if (entry->loaded == 0) break;  // those that are loaded come first
    add(*entry);
  }
  return blocks;
}

bool State::unload() {
  for (auto at = waiting.rbegin(); at != waiting.rend(); ++at) {
    QueuedRequest& entry = **at;
    if (entry.loaded == 0) continue;
    release(entry);
    entry.loaded = entry.gone = 0;
    return true;
  }
  return false;
}

void State::keep(QueuedRequest& entry) {
  if (entry.known == 0) return;
  const std::int64_t tokens = entry.prompt() + entry.outputs() - 1;  // the last one is never read
  if (entry.cached && !rules.write_back && !rules.blocking_copies) store(entry, tokens);
  if (entry.offloaded) {
    give_host_back(entry);
    store(entry, tokens);
  }
  const std::int64_t found = entry.offloaded ? std::min(tokens, shareable(entry.request)) : tokens;
  if (tiers.any() && (entry.cached || entry.offloaded)) touch(entry, found);
  if (entry.chained) keep_chain(entry, tokens);
}

// Kept tokens of a sequence whose answer no later prompt can name serve those that begin with its prompt: up to its
// last part, which may go on in them.
void State::keep_chain(QueuedRequest& entry, std::int64_t tokens) {
  std::int64_t all = tokens + entry.gone;
  if (entry.request.answer_key == 0) {
    all = 0;
    for (std::size_t i = 0; i + 1 < entry.request.content.size(); ++i) all += entry.request.content[i].tokens;
    if (all <= entry.gone) return;
    tokens = std::min(tokens, all - entry.gone);
  }
  if (all < rules.block) return;
  const std::int64_t blocks = State::need(entry, tokens);
  const Kept left{all, std::min(tokens, blocks * rules.block), blocks};
  const Chains::Key key = entry.chain.at(all / rules.block - 1, entry.request, rules.block);
  chains_.put(key, left);
  const auto bytes = static_cast<double>(blocks);
  tiers.put(key, bytes * rules.stored_bytes, bytes * rules.link_bytes, now, left);
}

// Offers full blocks of computed tokens to the caches behind the GPU. A request that has ended never looks for those of
// its own content again.
void State::store(QueuedRequest& entry, std::int64_t tokens) {
  if (!tiers.any()) return;
  const double blocks = blocks_of_piece(), copied = entry.offloaded ? 0 : blocks * rules.link_bytes;
  const std::int64_t full = tokens / piece_;
  const std::int64_t known =
      entry.all_done() ? std::clamp(shareable(entry.request) / piece_, entry.stored, full) : full;
  tiers.put_unknown(full - known, blocks * rules.stored_bytes, copied, now);
  for (std::int64_t i = known; i-- > entry.stored;) {
    const Tiers::Key key = entry.chain.at(i, entry.request, piece_);
    tiers.put(key, blocks * rules.stored_bytes, copied, now);
  }
  entry.stored = std::max(entry.stored, full);
}

// Blocks are needed by those after them: the last of a sequence are dropped first.
void State::touch(QueuedRequest& entry, std::int64_t tokens) {
  for (std::int64_t i = tokens / piece_; i-- > 0;) tiers.touch(entry.chain.at(i, entry.request, piece_));
}

// Storage is read as soon as a request arrives.
void State::prefetch(QueuedRequest& entry) {
  const std::int64_t most = (entry.target() - 1) / piece_;
  for (std::int64_t i = 0; i < most; ++i) {
    const Tiers::Key key = entry.chain.at(i, entry.request, piece_);
    if (tiers.find(key, now) == Tiers::kNone) return;
    tiers.fetch(key, now);
  }
}

// Takes free blocks; content that was in them is lost to the pool.
void State::take(Holding& holding, std::int64_t blocks) {
  pool.take(holding, blocks);
  chains_.limit(pool.free());
  if (!rules.write_back || !tiers.any()) return;
  for (const std::uint64_t hash : pool.evicted()) tiers.put(hash, rules.stored_bytes, rules.link_bytes, now);
  pool.clear_evicted();
}

}  // namespace kvcast::serving
