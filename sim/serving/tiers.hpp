// Caches behind the GPU's: host memory, storage, other machines.
#pragma once

#include <cstdint>
#include <limits>
#include <list>
#include <unordered_map>
#include <vector>

#include "serving/chains.hpp"
#include "serving/link.hpp"

namespace kvcast::serving {

inline constexpr std::size_t kMostTiers = 3;

// A cache of so many bytes, and the medium's own rates in bytes a second: that of host memory is the link's.
struct TierRules {
  double bytes = 0;
  double read = std::numeric_limits<double>::infinity(), write = std::numeric_limits<double>::infinity();
  double latency = 0;  // seconds
};

// Holds content by its key in a chain of caches, the first of which is host memory. Each drops first what was stored or
// used longest ago. Written through, content is stored in all of them when it is computed; written back, in the next
// when one has no room. A copy can be read once it has been written.
class Tiers {
 public:
  using Key = std::uint64_t;
  static constexpr int kNone = -1;

  Tiers(std::vector<TierRules> rules, bool write_back, LinkQueues& link);

  bool any() const { return !levels_.empty(); }
  bool write_back() const { return write_back_; }
  // Returns the first that has the content; kNone if there is none.
  int find(Key key, Picoseconds now, Kept* kept = nullptr) const;
  // The content has been used.
  void touch(Key key);
  // Stores content, of which `copied` bytes come over the link. `kept`: of a sequence that a policy has cut.
  void put(Key key, double bytes, double copied, Picoseconds now, const Kept& kept = {});
  // The same for `count` equal pieces that are never looked for, and only take room.
  void put_unknown(std::int64_t count, double bytes, double copied, Picoseconds now);
  void erase(Key key);
  // Reads content that lies behind the first cache into it.
  void fetch(Key key, Picoseconds now);
  // Reads bytes of a medium, after what it reads already. Returns when they are in host memory.
  Picoseconds read(int level, double bytes, Picoseconds now);
  // Leaves so many bytes to the first cache.
  void limit(double bytes);
  double used(int level) const { return levels_[static_cast<std::size_t>(level)].used; }

 private:
  struct Item {
    Key key = 0;
    double bytes = 0;
    std::int64_t unknown = 0;  // pieces of so many bytes, in place of one that has a key
    double position = 0;       // in the link's queue, at which it has been copied
    Picoseconds ready = 0;     // when the medium has written it
    Kept kept;
  };
  using Items = std::list<Item>;  // the one used last first
  struct Level {
    TierRules rules;
    double used = 0;
    Items items;
    std::unordered_map<Key, Items::iterator> by_key;
    Picoseconds reads_until = 0, writes_until = 0;
  };
  void store(std::size_t level, Item item, Picoseconds now);
  void make_room(std::size_t level, Picoseconds now);

  std::vector<Level> levels_;
  bool write_back_;
  LinkQueues& link_;
};

}  // namespace kvcast::serving
