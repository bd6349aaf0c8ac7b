#include "serving/blocks.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"

namespace kvcast::serving {
namespace {

// Equal tokens in layers of another group are other content.
std::uint64_t hash_of(std::uint64_t content, std::int64_t group) {
  return group == 0 ? content : mixed(content, static_cast<std::uint64_t>(group));
}

}  // namespace

Blocks::Blocks(std::int64_t total, bool cached, bool tells)
    : total_(total), free_(total), cached_(cached), tells_(tells) {
  if (cached) slots_.assign(1024, kNone);
}

void Blocks::take(Holding& holding, std::int64_t n) {
  KVCAST_CHECK(n >= 0 && n * holding.per <= free_);
  holding.count += n;
  if (!cached_) {
    free_ -= n * holding.per;
    return;
  }
  const auto per = static_cast<std::size_t>(holding.per), had = holding.ids.size();
  holding.ids.resize(had + static_cast<std::size_t>(n) * per);
  for (std::size_t group = 0; group < per; ++group) {
    for (std::size_t i = had + group; i < holding.ids.size(); i += per) holding.ids[i] = pop();
  }
}

// Returns blocks of the pool, those of the last tokens first.
void Blocks::release(Holding& holding, std::int64_t from, std::int64_t to) {
  if (!cached_) {
    free_ += (to - from) * holding.per;
    return;
  }
  for (std::int64_t group = 0; group < holding.per; ++group) {
    for (std::int64_t i = to; i-- > from;) {
      const Id id = holding.ids[static_cast<std::size_t>((i - holding.dropped) * holding.per + group)];
      if (--block(id).users == 0) append_free(id);
    }
  }
}

void Blocks::give_back(Holding& holding, std::int64_t keep) {
  KVCAST_CHECK(keep >= 0 && keep <= holding.count);
  release(holding, std::max(keep, holding.dropped), holding.count);
  holding.count = keep;
  holding.dropped = std::min(holding.dropped, keep);
  holding.named = std::min(holding.named, keep);
  if (cached_) holding.ids.resize(static_cast<std::size_t>(holding.in_pool()));
}

void Blocks::drop(Holding& holding, std::int64_t n) {
  if (n <= holding.dropped) return;
  KVCAST_CHECK(n <= holding.count);
  release(holding, holding.dropped, n);
  if (cached_) holding.ids.erase(holding.ids.begin(), holding.ids.begin() + (n - holding.dropped) * holding.per);
  holding.dropped = n;
}

// Blocks of the pool without user that have this content; negative if any group lacks it.
std::int64_t Blocks::unused_of(const Holding& kind, std::uint64_t content) const {
  std::int64_t unused = 0;
  for (std::int64_t group = kind.group; group < kind.group + kind.per; ++group) {
    const Id id = first_of(hash_of(content, group));
    if (id == kNone) return -1;
    if (block(id).users == 0) ++unused;
  }
  return unused;
}

Blocks::Hit Blocks::find(const Holding& kind, Chain& chain, const traffic::Request& request, std::int64_t size,
                         std::int64_t most, std::optional<std::int64_t> needed) const {
  Hit hit;
  if (!needed) {
    for (; hit.blocks < most; ++hit.blocks) {
      const std::int64_t unused = unused_of(kind, chain.at(hit.blocks, request, size));
      if (unused < 0) break;
      hit.unused += unused;
    }
    return hit;
  }
  // The last run of so many blocks, or the one that begins the sequence.
  hit.blocks = hit.from = most;
  while (hit.from > 0 && hit.blocks - hit.from < *needed) {
    const std::int64_t unused = unused_of(kind, chain.at(--hit.from, request, size));
    hit.unused += unused;
    if (unused < 0) hit = {hit.from, hit.from, 0};
  }
  return hit;
}

void Blocks::share(Holding& holding, Chain& chain, const traffic::Request& request, std::int64_t size, const Hit& hit) {
  KVCAST_CHECK(holding.count == 0);
  for (std::int64_t i = hit.from; i < hit.blocks; ++i) {
    for (std::int64_t group = holding.group; group < holding.group + holding.per; ++group) {
      const Id id = first_of(hash_of(chain.at(i, request, size), group));
      KVCAST_CHECK(id != kNone);
      if (block(id).users++ == 0) unlink(id);
      holding.ids.push_back(id);
    }
  }
  holding.count = holding.named = hit.blocks;
  holding.dropped = hit.from;
}

void Blocks::name(Holding& holding, Chain& chain, const traffic::Request& request, std::int64_t size, std::int64_t n) {
  for (holding.named = std::max(holding.named, holding.dropped); holding.named < n; ++holding.named) {
    for (std::int64_t group = 0; group < holding.per; ++group) {
      const Id id = holding.ids[static_cast<std::size_t>((holding.named - holding.dropped) * holding.per + group)];
      block(id).hash = hash_of(chain.at(holding.named, request, size), holding.group + group);
      enter(id);
    }
  }
}

// The first that was entered of the blocks with this hash.
Blocks::Id Blocks::first_of(std::uint64_t hash) const {
  Id id = slots_[slot(hash)];
  while (id != kNone && block(id).hash != hash) id = block(id).same_slot;
  return id;
}

void Blocks::enter(Id id) {
  if (static_cast<std::size_t>(++entered_) > slots_.size()) rehash(slots_.size() * 4);
  Block& added = block(id);
  added.named = true;
  added.same_slot = kNone;
  Id* link = &slots_[slot(added.hash)];
  while (*link != kNone) link = &block(*link).same_slot;
  *link = id;
}

void Blocks::forget(Id id) {
  Id* link = &slots_[slot(block(id).hash)];
  while (*link != id) link = &block(*link).same_slot;
  *link = block(id).same_slot;
  block(id).named = false;
  --entered_;
}

// Keeps the order of equal hashes.
void Blocks::rehash(std::size_t slots) {
  const std::vector<Id> old = std::exchange(slots_, std::vector<Id>(slots, kNone));
  std::vector<Id> last(slots, kNone);
  for (Id id : old) {
    while (id != kNone) {
      const Id next = std::exchange(block(id).same_slot, kNone);
      const std::size_t at = slot(block(id).hash);
      (last[at] == kNone ? slots_[at] : block(last[at]).same_slot) = id;
      last[at] = id;
      id = next;
    }
  }
}

void Blocks::append_free(Id id) {
  block(id).before = tail_;
  block(id).after = kNone;
  (tail_ == kNone ? head_ : block(tail_).after) = id;
  tail_ = id;
  ++free_;
}

void Blocks::unlink(Id id) {
  const Block& gone = block(id);
  (gone.before == kNone ? head_ : block(gone.before).after) = gone.after;
  (gone.after == kNone ? tail_ : block(gone.after).before) = gone.before;
  --free_;
}

Blocks::Id Blocks::pop() {
  Id id = head_;
  if (static_cast<std::int64_t>(blocks_.size()) < total_) {
    KVCAST_CHECK(blocks_.size() < static_cast<std::size_t>(std::numeric_limits<Id>::max()));
    id = static_cast<Id>(blocks_.size());
    blocks_.emplace_back();
    --free_;
  } else {
    unlink(id);
    if (block(id).named) {
      if (tells_) evicted_.push_back(block(id).hash);
      forget(id);
    }
  }
  block(id).users = 1;
  return id;
}

}  // namespace kvcast::serving
