#include "plan/replicas.hpp"

#include <algorithm>
#include <map>

#include "base/hash.hpp"

namespace kvcast::plan {

bool is_seed(const std::string& key) { return key == "seed" || key.ends_with(".seed"); }

std::string replica_text(const result::Result& r) {
  const bool seeded = std::ranges::any_of(r.subject.swept, [](const auto& entry) { return is_seed(entry.first); });
  if (!seeded) return "";
  // Keys that a sweep does not change are constant, so that the swept values and the subject identify a setting.
  std::string setting = r.subject.policy;
  for (const auto& s : r.subject.settings) {
    if (!is_seed(s.key)) setting += "|" + s.key + "=" + result::text_of(s.value);
  }
  for (const auto& [key, value] : r.subject.swept) {
    if (!is_seed(key)) setting += "|" + key + "=" + value;
  }
  return content_hash(setting);  // a short one: every row may have its own
}

ResultRows middle_replicas(const ResultRows& rows) {
  if (std::ranges::all_of(rows, [](const ResultRow& r) { return r.replica < 0; })) return rows;
  std::vector<ResultRows> settings;
  std::map<int, std::size_t> at;
  for (const ResultRow& r : rows) {
    const auto place = r.replica < 0 ? settings.size() : at.emplace(r.replica, settings.size()).first->second;
    if (place == settings.size()) settings.emplace_back();
    settings[place].push_back(r);
  }
  ResultRows middle;
  for (ResultRows& replicas : settings) {
    const auto middle_one = replicas.begin() + static_cast<std::ptrdiff_t>((replicas.size() - 1) / 2);
    std::ranges::nth_element(replicas, middle_one, {}, &ResultRow::tokens_per_s);
    middle.push_back(*middle_one);
  }
  return middle;
}

}  // namespace kvcast::plan
