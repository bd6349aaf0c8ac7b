// The pool of blocks, and the prefix cache of those that nobody uses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "serving/content.hpp"

namespace kvcast::serving {

// Blocks that a request has for layers of one kind, counted by the tokens that they hold: each is `per` blocks of the
// pool, one for each group of such layers.
struct Holding {
  std::int64_t per = 1, group = 0;  // the latter: number of the first group
  std::int64_t count = 0;           // those included that were dropped
  std::int64_t dropped = 0;         // leading ones that have left a window
  std::int64_t named = 0;           // leading blocks that can be found by their content, or could
  std::vector<std::int32_t> ids;    // of those named and not dropped, in order of the tokens, then the groups

  std::int64_t in_pool() const { return (count - dropped) * per; }
  std::int64_t named_end() const { return std::max(named, dropped); }
};

// Counts blocks, and with a prefix cache knows the hash of those that are named, as vLLM V1 does
// (v1/core/block_pool.py): blocks without user lie in one list, from which the first are given out and lose their hash.
// Returned blocks go to its end, in reverse order, and keep theirs. Blocks without a name are interchangeable: the list
// has runs of them.
class Blocks {
 public:
  // tells: notes the content that is lost when a named block is given out.
  Blocks(std::int64_t total, bool cached, bool tells = false);

  std::int64_t total() const { return total_; }
  // Blocks without user, those included that can be found by their content.
  std::int64_t free() const { return free_; }
  bool cached() const { return cached_; }

  const std::vector<std::uint64_t>& evicted() const { return evicted_; }
  void clear_evicted() { evicted_.clear(); }

  // Appends n blocks; at least n · per are free().
  void take(Holding& holding, std::int64_t n);
  // Returns all blocks but the first `keep`.
  void give_back(Holding& holding, std::int64_t keep);
  // Returns those of the first n that have not been.
  void drop(Holding& holding, std::int64_t n);
  // Gives back n blocks that no holding has any more.
  void add_free(std::int64_t n) { free_ += n; }

  bool has(std::uint64_t hash) const { return first_of(hash) != kNone; }
  // Leading blocks of a sequence, the first of them that is needed, and blocks of the pool among the needed ones that
  // no request uses.
  struct Hit {
    std::int64_t blocks = 0, from = 0, unused = 0;
  };
  // Finds blocks that are in the cache, at most so many, for a holding of this kind. A window needs the last `needed`
  // blocks of them, the whole cache all.
  Hit find(const Holding& kind, Chain& chain, const traffic::Request& request, std::int64_t block, std::int64_t most,
           std::optional<std::int64_t> needed = {}) const;
  // Appends what find() has found to a holding without blocks.
  void share(Holding& holding, Chain& chain, const traffic::Request& request, std::int64_t block, const Hit& hit);
  // Enters the blocks up to the n-th into the cache.
  void name(Holding& holding, Chain& chain, const traffic::Request& request, std::int64_t block, std::int64_t n);

 private:
  using Id = std::int32_t;
  static constexpr Id kNone = -1;
  struct Node {
    Id before = kNone, after = kNone;  // in the list of blocks without user; spare nodes have only the latter
    Id same_slot = kNone;              // next in the hash table's slot
    std::int32_t users = 0;
    std::int64_t run = 0;    // blocks without a name; 0: one that is named
    std::uint64_t hash = 0;  // of that
  };
  Node& node(Id id) { return nodes_[static_cast<std::size_t>(id)]; }
  const Node& node(Id id) const { return nodes_[static_cast<std::size_t>(id)]; }
  std::size_t slot(std::uint64_t hash) const { return static_cast<std::size_t>(hash) & (slots_.size() - 1); }
  Id first_of(std::uint64_t hash) const;
  std::int64_t unused_of(const Holding& kind, std::uint64_t content) const;
  void release(Holding& holding, std::int64_t from, std::int64_t to);
  void enter(Id id);
  void forget(Id id);
  void rehash(std::size_t slots);
  Id make_node();
  void append_run(std::int64_t blocks);
  void append(Id id);
  void unlink(Id id);
  void pop();

  std::int64_t total_, free_;
  bool cached_, tells_;
  std::vector<std::uint64_t> evicted_;
  std::vector<Node> nodes_;
  std::vector<Id> slots_;
  std::int64_t entered_ = 0;
  Id head_ = kNone, tail_ = kNone, spare_ = kNone;
};

}  // namespace kvcast::serving
