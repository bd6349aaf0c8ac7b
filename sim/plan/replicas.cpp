#include "plan/replicas.hpp"

#include <algorithm>
#include <map>

namespace kvcast::plan {

using result::Result;

bool is_seed(const std::string& key) { return key == "seed" || key.ends_with(".seed"); }

std::vector<const Result*> middle_replicas(const std::vector<const Result*>& results) {
  std::vector<std::vector<const Result*>> settings;
  std::map<std::string, std::size_t> at;
  for (const Result* const r : results) {
    const bool seeded = std::ranges::any_of(r->subject.swept, [](const auto& entry) { return is_seed(entry.first); });
    // Keys that a sweep does not change are constant, so that the swept values and the subject identify a setting.
    std::string setting = seeded ? r->subject.policy : std::to_string(settings.size());
    if (seeded) {
      for (const auto& s : r->subject.settings) {
        if (!is_seed(s.key)) setting += "|" + s.key + "=" + result::text_of(s.value);
      }
      for (const auto& [key, value] : r->subject.swept) {
        if (!is_seed(key)) setting += "|" + key + "=" + value;
      }
    }
    const auto [found, fresh] = at.emplace(setting, settings.size());
    if (fresh) settings.emplace_back();
    settings[found->second].push_back(r);
  }
  std::vector<const Result*> middle;
  for (std::vector<const Result*>& replicas : settings) {
    const auto middle_one = replicas.begin() + static_cast<std::ptrdiff_t>((replicas.size() - 1) / 2);
    const auto rate = [](const Result* r) { return r->has_times() ? r->experiment.tokens_per_s : 0; };
    std::nth_element(replicas.begin(), middle_one, replicas.end(),
                     [&](const Result* a, const Result* b) { return rate(a) < rate(b); });
    middle.push_back(*middle_one);
  }
  return middle;
}

}  // namespace kvcast::plan
