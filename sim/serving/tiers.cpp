#include "serving/tiers.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kvcast::serving {
namespace {

Picoseconds time_of(double bytes, double rate) { return static_cast<Picoseconds>(std::ceil(bytes / rate * 1e12)); }

}  // namespace

Tiers::Tiers(std::vector<TierRules> rules, bool write_back, LinkQueues& link) : write_back_(write_back), link_(link) {
  for (TierRules& level : rules) levels_.push_back({std::move(level), 0, {}, {}, 0, 0});
}

int Tiers::find(Key key, Picoseconds now, Kept* kept) const {
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    const auto found = levels_[i].by_key.find(key);
    if (found == levels_[i].by_key.end()) continue;
    if (!link_.is_out(found->second->position) || found->second->ready > now) continue;
    if (kept != nullptr) *kept = found->second->kept;
    return static_cast<int>(i);
  }
  return kNone;
}

void Tiers::touch(Key key) {
  for (Level& level : levels_) {
    const auto found = level.by_key.find(key);
    if (found != level.by_key.end()) level.items.splice(level.items.begin(), level.items, found->second);
  }
}

void Tiers::put(Key key, double bytes, double copied, Picoseconds now, const Kept& kept) {
  if (levels_.empty()) return;
  const auto there = [&](const Level& level) { return level.by_key.contains(key); };
  const double position = copied > 0 && std::ranges::none_of(levels_, there) ? link_.send_out(copied) : 0;
  const std::size_t last = write_back_ ? 1 : levels_.size();
  for (std::size_t i = 0; i < last; ++i) {
    if (!there(levels_[i])) store(i, {key, bytes, 0, position, now, kept}, now);
  }
}

void Tiers::put_unknown(std::int64_t count, double bytes, double copied, Picoseconds now) {
  if (levels_.empty() || count <= 0) return;
  if (copied > 0) link_.send_out(static_cast<double>(count) * copied);
  const std::size_t last = write_back_ ? 1 : levels_.size();
  for (std::size_t i = 0; i < last; ++i) store(i, {0, bytes, count, 0, now, {}}, now);
}

void Tiers::erase(Key key) {
  for (Level& level : levels_) {
    const auto found = level.by_key.find(key);
    if (found == level.by_key.end()) continue;
    level.used -= found->second->bytes;
    level.items.erase(found->second);
    level.by_key.erase(found);
  }
}

void Tiers::fetch(Key key, Picoseconds now) {
  const int from = find(key, now);
  if (from <= 0 || levels_[0].by_key.contains(key)) return;
  Item item = *levels_[from].by_key.at(key);
  item.ready = read(from, item.bytes, now);
  store(0, item, now);
}

void Tiers::store(std::size_t i, Item item, Picoseconds now) {
  Level& level = levels_[i];
  if (item.bytes > level.rules.bytes) return;
  const std::int64_t pieces = std::max<std::int64_t>(1, item.unknown);
  if (std::isfinite(level.rules.write)) {
    level.writes_until = std::max(level.writes_until, now) + pieces * time_of(item.bytes, level.rules.write);
    item.ready = level.writes_until;
  }
  level.used += static_cast<double>(pieces) * item.bytes;
  level.items.push_front(item);
  if (item.unknown == 0) level.by_key[item.key] = level.items.begin();
  make_room(i, now);
}

void Tiers::make_room(std::size_t i, Picoseconds now) {
  Level& level = levels_[i];
  while (level.used > level.rules.bytes && !level.items.empty()) {
    Item& last = level.items.back();
    Item gone = last;
    const auto least = static_cast<std::int64_t>(std::ceil((level.used - level.rules.bytes) / gone.bytes));
    gone.unknown = std::min(gone.unknown, std::max<std::int64_t>(1, least));
    if (gone.unknown < last.unknown) {
      last.unknown -= gone.unknown;
    } else {
      level.items.pop_back();
      if (gone.unknown == 0) level.by_key.erase(gone.key);
    }
    const std::int64_t pieces = std::max<std::int64_t>(1, gone.unknown);
    level.used = level.items.empty() ? 0 : level.used - static_cast<double>(pieces) * gone.bytes;
    if (write_back_ && i + 1 < levels_.size() && (gone.unknown > 0 || !levels_[i + 1].by_key.contains(gone.key)))
      store(i + 1, gone, now);
  }
}

Picoseconds Tiers::read(int i, double bytes, Picoseconds now) {
  Level& level = levels_[i];
  if (!std::isfinite(level.rules.read)) return now;
  level.reads_until = std::max(level.reads_until, now) + time_of(bytes, level.rules.read);
  return level.reads_until + static_cast<Picoseconds>(level.rules.latency * 1e12);
}

void Tiers::limit(double bytes) {
  if (levels_.empty()) return;
  levels_[0].rules.bytes = std::max(0.0, bytes);
  make_room(0, 0);
}

}  // namespace kvcast::serving
