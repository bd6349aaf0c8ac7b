#include "serving/chains.hpp"

#include <utility>

namespace kvcast::serving {

void Chains::put(Key key, const Kept& kept) {
  take(key);
  items_.emplace_front(key, kept);
  by_key_[key] = items_.begin();
  blocks_ += kept.blocks;
}

const Kept* Chains::find(Key key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &found->second->second;
}

void Chains::take(Key key) {
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) erase(found->second);
}

void Chains::limit(std::int64_t blocks) {
  while (blocks_ > blocks && !items_.empty()) erase(std::prev(items_.end()));
}

void Chains::erase(Items::iterator item) {
  blocks_ -= item->second.blocks;
  by_key_.erase(item->first);
  items_.erase(item);
}

}  // namespace kvcast::serving
