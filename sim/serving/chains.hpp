// Tokens that policies which evict have kept of sequences that ended, each for one continuation.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

namespace kvcast::serving {

// The kept part of a sequence. It serves a prompt that begins with all of the sequence's tokens.
struct Kept {
  std::int64_t tokens = 0;  // of the sequence
  std::int64_t held = 0;    // tokens that the kept keys and values count as
  std::int64_t blocks = 0;  // of the pool
};

// Lies in blocks of the pool that no request uses: those that a request takes drop what ended longest ago.
class Chains {
 public:
  using Key = std::uint64_t;

  bool empty() const { return by_key_.empty(); }
  std::int64_t blocks() const { return blocks_; }
  void put(Key key, const Kept& kept);
  const Kept* find(Key key) const;
  // Removes what continues.
  void take(Key key);
  // Drops entries until they have no more blocks than these.
  void limit(std::int64_t blocks);

 private:
  using Items = std::list<std::pair<Key, Kept>>;  // the one that ended last first
  void erase(Items::iterator item);
  Items items_;
  std::unordered_map<Key, Items::iterator> by_key_;
  std::int64_t blocks_ = 0;
};

}  // namespace kvcast::serving
