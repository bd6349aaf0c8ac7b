// Memory of the sessions of a trace, of a limited number of them.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>

namespace kvcast::traffic {

// A map that forgets the keys inserted first.
template <typename Value>
class Recent {
 public:
  static constexpr std::size_t kMost = 65536;

  Value* find(std::int64_t key) {
    const auto at = values_.find(key);
    return at == values_.end() ? nullptr : &at->second;
  }
  void put(std::int64_t key, Value value) {
    if (!values_.insert_or_assign(key, std::move(value)).second) return;
    order_.push_back(key);
    if (order_.size() <= kMost) return;
    values_.erase(order_.front());
    order_.pop_front();
  }

 private:
  std::unordered_map<std::int64_t, Value> values_;
  std::deque<std::int64_t> order_;
};

}  // namespace kvcast::traffic
