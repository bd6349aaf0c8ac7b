#include "serving/blocks.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"

namespace kvcast::serving {

Blocks::Blocks(std::int64_t total, bool cached, bool tells)
    : total_(total), free_(total), cached_(cached), tells_(tells) {
  if (cached) slots_.assign(1024, kNone);
}

void Blocks::take(Holding& holding, std::int64_t n) {
  KVCAST_CHECK(n >= 0 && n <= free_);
  holding.count += n;
  if (!cached_) {
    free_ -= n;
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) holding.ids.push_back(pop());
}

void Blocks::give_back(Holding& holding, std::int64_t keep) {
  KVCAST_CHECK(keep >= 0 && keep <= holding.count);
  if (!cached_) free_ += holding.count - keep;
  while (static_cast<std::int64_t>(holding.ids.size()) > keep) {
    const Id id = holding.ids.back();
    holding.ids.pop_back();
    if (--block(id).users == 0) append_free(id);
  }
  holding.count = keep;
  holding.named = std::min(holding.named, keep);
}

Blocks::Hit Blocks::find(Chain& chain, const traffic::Request& request, std::int64_t size, std::int64_t most) const {
  Hit hit;
  for (; hit.blocks < most; ++hit.blocks) {
    const Id id = first_of(chain.at(hit.blocks, request, size));
    if (id == kNone) break;
    if (block(id).users == 0) ++hit.unused;
  }
  return hit;
}

void Blocks::share(Holding& holding, Chain& chain, const traffic::Request& request, std::int64_t size, std::int64_t n) {
  KVCAST_CHECK(holding.count == 0);
  for (std::int64_t i = 0; i < n; ++i) {
    const Id id = first_of(chain.at(i, request, size));
    KVCAST_CHECK(id != kNone);
    if (block(id).users++ == 0) unlink(id);
    holding.ids.push_back(id);
  }
  holding.count = holding.named = n;
}

void Blocks::name(Holding& holding, Chain& chain, const traffic::Request& request, std::int64_t size, std::int64_t n) {
  for (; holding.named < n; ++holding.named) {
    const Id id = holding.ids[static_cast<std::size_t>(holding.named)];
    block(id).hash = chain.at(holding.named, request, size);
    enter(id);
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
