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
  if (!cached) return;
  slots_.assign(1024, kNone);
  append_run(total);
}

void Blocks::take(Holding& holding, std::int64_t n) {
  std::int64_t left = n * holding.per;
  KVCAST_CHECK(n >= 0 && left <= free_);
  holding.count += n;
  free_ -= left;
  while (cached_ && left > 0) {
    std::int64_t& run = node(head_).run;
    if (run > left) {
      run -= left;
      return;
    }
    left -= std::max<std::int64_t>(1, run);
    pop();
  }
}

// Returns blocks of the pool, those of the last tokens first.
void Blocks::release(Holding& holding, std::int64_t from, std::int64_t to) {
  const std::int64_t named = cached_ ? std::clamp(holding.named_end(), from, to) : from;
  free_ += (to - named) * holding.per;
  if (!cached_) return;
  for (std::int64_t group = 0; group < holding.per; ++group) {
    append_run(to - named);
    for (std::int64_t i = named; i-- > from;) {
      const Id id = holding.ids[static_cast<std::size_t>((i - holding.dropped) * holding.per + group)];
      if (--node(id).users > 0) continue;
      append(id);
      ++free_;
    }
  }
}

void Blocks::give_back(Holding& holding, std::int64_t keep) {
  KVCAST_CHECK(keep >= 0 && keep <= holding.count);
  release(holding, std::max(keep, holding.dropped), holding.count);
  holding.count = keep;
  holding.dropped = std::min(holding.dropped, keep);
  holding.named = std::min(holding.named, keep);
  if (cached_) holding.ids.resize(static_cast<std::size_t>((holding.named_end() - holding.dropped) * holding.per));
}

void Blocks::drop(Holding& holding, std::int64_t n) {
  if (n <= holding.dropped) return;
  KVCAST_CHECK(n <= holding.count);
  release(holding, holding.dropped, n);
  const std::int64_t named = std::min(n, holding.named_end()) - holding.dropped;
  if (cached_) holding.ids.erase(holding.ids.begin(), holding.ids.begin() + named * holding.per);
  holding.dropped = n;
}

// Blocks of the pool without user that have this content; negative if any group lacks it.
std::int64_t Blocks::unused_of(const Holding& kind, std::uint64_t content) const {
  std::int64_t unused = 0;
  for (std::int64_t group = kind.group; group < kind.group + kind.per; ++group) {
    const Id id = first_of(hash_of(content, group));
    if (id == kNone) return -1;
    if (node(id).users == 0) ++unused;
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
      if (node(id).users++ == 0) {
        unlink(id);
        --free_;
      }
      holding.ids.push_back(id);
    }
  }
  holding.count = holding.named = hit.blocks;
  holding.dropped = hit.from;
}

void Blocks::name(Holding& holding, Chain& chain, const traffic::Request& request, std::int64_t size, std::int64_t n) {
  for (holding.named = std::max(holding.named, holding.dropped); holding.named < n; ++holding.named) {
    for (std::int64_t group = 0; group < holding.per; ++group) {
      const Id id = make_node();
      holding.ids.push_back(id);
      node(id).users = 1;
      node(id).hash = hash_of(chain.at(holding.named, request, size), holding.group + group);
      enter(id);
    }
  }
}

// The first that was entered of the blocks with this hash.
Blocks::Id Blocks::first_of(std::uint64_t hash) const {
  Id id = slots_[slot(hash)];
  while (id != kNone && node(id).hash != hash) id = node(id).same_slot;
  return id;
}

void Blocks::enter(Id id) {
  if (static_cast<std::size_t>(++entered_) > slots_.size()) rehash(slots_.size() * 4);
  Node& added = node(id);
  added.same_slot = kNone;
  Id* link = &slots_[slot(added.hash)];
  while (*link != kNone) link = &node(*link).same_slot;
  *link = id;
}

void Blocks::forget(Id id) {
  Id* link = &slots_[slot(node(id).hash)];
  while (*link != id) link = &node(*link).same_slot;
  *link = node(id).same_slot;
  --entered_;
}

// Keeps the order of equal hashes.
void Blocks::rehash(std::size_t slots) {
  const std::vector<Id> old = std::exchange(slots_, std::vector<Id>(slots, kNone));
  std::vector<Id> last(slots, kNone);
  for (Id id : old) {
    while (id != kNone) {
      const Id next = std::exchange(node(id).same_slot, kNone);
      const std::size_t at = slot(node(id).hash);
      (last[at] == kNone ? slots_[at] : node(last[at]).same_slot) = id;
      last[at] = id;
      id = next;
    }
  }
}

Blocks::Id Blocks::make_node() {
  Id id = spare_;
  if (id != kNone) {
    spare_ = node(id).after;
    node(id) = {};
    return id;
  }
  KVCAST_CHECK(nodes_.size() < static_cast<std::size_t>(std::numeric_limits<Id>::max()));
  id = static_cast<Id>(nodes_.size());
  nodes_.emplace_back();
  return id;
}

void Blocks::append_run(std::int64_t blocks) {
  if (blocks <= 0) return;
  if (tail_ == kNone || node(tail_).run == 0) append(make_node());
  node(tail_).run += blocks;
}

void Blocks::append(Id id) {
  node(id).before = tail_;
  node(id).after = kNone;
  (tail_ == kNone ? head_ : node(tail_).after) = id;
  tail_ = id;
}

void Blocks::unlink(Id id) {
  const Node& gone = node(id);
  (gone.before == kNone ? head_ : node(gone.before).after) = gone.after;
  (gone.after == kNone ? tail_ : node(gone.after).before) = gone.before;
}

// Takes the first node out of the list, all of whose blocks are given out.
void Blocks::pop() {
  const Id id = head_;
  unlink(id);
  if (node(id).run == 0) {
    if (tells_) evicted_.push_back(node(id).hash);
    forget(id);
  }
  node(id).after = spare_;
  spare_ = id;
}

}  // namespace kvcast::serving
