#include "report/series.hpp"

#include <algorithm>
#include <utility>

namespace kvcast::report {

namespace {

bool is_axis(const std::string& key) {
  static const std::set<std::string> axes = {
      "model", "hardware", "policy", "policy.name", "policy.budget", "workload.prompt_tokens", "workload.batch"};
  return axes.count(key) > 0;
}

// Keys whose values draw another sample of the same thing.
bool is_replica(const std::string& key) { return key == "seed" || key.ends_with(".seed"); }

// The value at the key: as swept, else as configured, else empty (the key is another policy's).
std::string value_of(const result::Subject& subject, const std::string& key) {
  for (const auto& [swept, value] : subject.swept) {
    if (swept == key) return value;
  }
  return subject.text(key);
}

}  // namespace

void SeriesNames::learn_keys(const result::Subject& subject) {
  for (const auto& [key, value] : subject.swept) {
    if (!is_axis(key) && !is_replica(key) && std::find(keys_.begin(), keys_.end(), key) == keys_.end())
      keys_.push_back(key);
  }
}

void SeriesNames::learn_values(const result::Subject& subject) {
  const std::string policy = policy_of(subject);
  for (const std::string& key : keys_) values_[policy][key].insert(value_of(subject, key));
}

std::string SeriesNames::policy_of(const result::Subject& subject) {
  return subject.policy.empty() ? "unnamed" : subject.policy;
}

std::string SeriesNames::variant_of(const result::Subject& subject) const {
  std::string variant;
  const auto policy = values_.find(policy_of(subject));
  if (policy == values_.end()) return variant;
  for (const std::string& key : keys_) {
    const std::string value = value_of(subject, key);
    if (value.empty() || policy->second.at(key).size() < 2) continue;
    variant += (variant.empty() ? "" : ", ") + key.substr(key.rfind('.') + 1) + " " + value;
  }
  return variant;
}

std::string SeriesNames::replica_of(const result::Subject& subject) {
  std::string replica;
  for (const auto& [key, value] : subject.swept) {
    if (is_replica(key)) replica += (replica.empty() ? "seed " : ", ") + value;
  }
  return replica;
}

std::string SeriesNames::join(const std::string& policy, const std::string& variant) {
  return variant.empty() ? policy : policy + ", " + variant;
}

void SeriesNames::appear(const std::string& policy, const std::string& variant) {
  const std::pair<std::string, std::string> entry(policy, variant);
  if (std::find(series_.begin(), series_.end(), entry) == series_.end()) series_.push_back(entry);
}

Table SeriesNames::table(Palette& palette) const {
  Table table;
  std::map<std::string, std::size_t> policies;  // policy → place
  std::map<std::string, std::size_t> variants;  // policy → variants so far
  for (const auto& [policy, variant] : series_) policies.emplace(policy, policies.size());
  // A policy's variants stand together, in the order in which the policies appear.
  std::vector<std::pair<std::string, std::string>> sorted = series_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const auto& a, const auto& b) { return policies[a.first] < policies[b.first]; });
  for (const auto& [policy, variant] : sorted) {
    const std::size_t nth = variants[policy]++;
    table.begin_row();
    table.set("series", join(policy, variant));
    table.set("policy", policy);
    table.set("variant", variant);
    table.set("order", static_cast<double>(table.rows() - 1));
    table.set("color", palette.color("policies", policy));
    table.set("symbol", palette.symbol(policies[policy]));
    table.set("dash", palette.dash(nth));
    table.set("preferred", nth == 0 ? 1.0 : 0.0);
  }
  return table;
}

}  // namespace kvcast::report
