#include "report/series.hpp"

#include <algorithm>
#include <string_view>

#include "plan/replicas.hpp"

namespace kvcast::report {

namespace {

constexpr std::string_view kMatch = "match.";

// A number of tokens is a context; a distribution is not, because others have the same mean.
bool is_context(const std::string& key, const std::string& value) {
  return key == "traffic.prompt_tokens" && result::number_of(result::setting_value(value)).has_value();
}

// The key of the cost that `match:` requested; empty if a budget is written.
std::string match_key(const result::Subject& subject) {
  for (const result::Setting& s : subject.settings) {
    if (s.key.starts_with(kMatch) && s.key != "match.reached") return s.key;
  }
  return "";
}

// The value at the key: as swept, else as configured, else empty (the key is another policy's).
std::string value_of(const result::Subject& subject, const std::string& key) {
  for (const auto& [swept, value] : subject.swept) {
    if (swept == key) return value;
  }
  return subject.text(key);
}

}  // namespace

bool is_axis(const std::string& key) {
  static const std::set<std::string> axes = {"model",           "hardware",      "policy",
                                             "policy.name",     "policy.budget", "workload.prompt_tokens",
                                             "workload.batch",  "traffic.rate",  "traffic.concurrency",
                                             "traffic.speedup", "trace.depth"};
  return axes.count(key) > 0;
}

void SeriesNames::learn_keys(const result::Subject& subject) {
  for (const auto& [key, value] : subject.swept) {
    if (!is_axis(key) && !is_context(key, value) && !plan::is_seed(key) && std::ranges::find(keys_, key) == keys_.end())
      keys_.push_back(key);
  }
  if (const std::string key = match_key(subject); !key.empty() || subject.number("policy.budget"))
    match_keys_.insert(key);
}

void SeriesNames::learn_values(const result::Subject& subject) {
  const std::string policy = policy_of(subject);
  for (const std::string& key : keys_) values_[policy][key].insert(value_of(subject, key));
}

void SeriesNames::choose_cost() {
  if (match_keys_.size() != 1 || match_keys_.begin()->empty()) return;
  match_key_ = *match_keys_.begin();
  cost_ = match_key_.substr(kMatch.size());
  std::replace(cost_.begin(), cost_.end(), '_', ' ');
  std::erase_if(keys_, [](const std::string& key) { return key == "match" || key.starts_with(kMatch); });
}

std::optional<double> SeriesNames::budget_of(const result::Subject& subject, result::Status status) const {
  const std::optional<double> solved = subject.number("policy.budget");
  // A cost that cannot be reached leaves a failed experiment without a budget.
  const bool matched = !match_key_.empty() && (solved || status == result::Status::kFailed);
  return matched ? subject.number(match_key_) : solved;
}

std::string SeriesNames::policy_of(const result::Subject& subject) {
  return subject.policy.empty() ? "unnamed" : subject.policy;
}

std::vector<std::string> SeriesNames::differing_keys(const std::string& policy) const {
  const auto values = values_.find(policy);
  std::vector<std::string> keys;
  for (const std::string& key : keys_) {
    if (values != values_.end() && values->second.at(key).size() > 1) keys.push_back(key);
  }
  return keys;
}

std::string SeriesNames::variant_of(const result::Subject& subject) const {
  std::string variant;
  for (const std::string& key : differing_keys(policy_of(subject))) {
    const std::string value = value_of(subject, key);
    if (!value.empty()) variant = join(variant, key.substr(key.rfind('.') + 1) + " " + value);
  }
  return variant;
}

std::string SeriesNames::label_of(const result::Subject& subject) const {
  std::string label = policy_of(subject);
  const std::vector<std::string> keys = differing_keys(label);
  for (const std::string& key : keys) {
    const std::string value = value_of(subject, key), name = key.substr(key.rfind('.') + 1);
    if (value.empty()) continue;
    const bool flag = value == "true" || value == "false";
    label = join(label, flag ? (value == "true" ? name : "no " + name) : keys.size() == 1 ? value : name + " " + value);
  }
  return label;
}

std::string SeriesNames::replica_of(const result::Subject& subject) {
  std::string replica;
  for (const auto& [key, value] : subject.swept) {
    if (plan::is_seed(key)) replica += (replica.empty() ? "seed " : ", ") + value;
  }
  return replica;
}

std::string SeriesNames::join(const std::string& policy, const std::string& variant) {
  return policy.empty() || variant.empty() ? policy + variant : policy + ", " + variant;
}

void SeriesNames::appear(const result::Subject& subject) {
  const Series entry{policy_of(subject), variant_of(subject), label_of(subject), value_of(subject, kStoreKey)};
  const auto same = [&](const Series& s) { return s.policy == entry.policy && s.variant == entry.variant; };
  if (std::ranges::none_of(series_, same)) series_.push_back(entry);
}

Table SeriesNames::table(Palette& palette) const {
  Table table;
  std::map<std::string, std::size_t> policies;              // policy → rank
  std::map<std::string, std::size_t> variants;              // policy → variants so far
  std::set<std::pair<std::string, std::string>> preferred;  // policies that have one, by store
  for (const Series& s : series_) policies.emplace(s.policy, policies.size());
  // A policy's variants are adjacent, in the order in which the policies appear.
  std::vector<Series> sorted = series_;
  std::ranges::stable_sort(sorted,
                           [&](const Series& a, const Series& b) { return policies[a.policy] < policies[b.policy]; });
  for (const auto& [policy, variant, label, store] : sorted) {
    const std::size_t nth = variants[policy]++;
    table.begin_row();
    table.set("series", join(policy, variant));
    table.set("policy", policy);
    table.set("variant", variant);
    table.set("label", label);
    table.set("order", static_cast<double>(table.rows() - 1));
    table.set("color", palette.variant_color(policy, nth));
    table.set("symbol", palette.symbol(policy));
    table.set("dash", palette.dash(nth));
    table.set("preferred", preferred.emplace(policy, store).second ? 1.0 : 0.0);
  }
  return table;
}

}  // namespace kvcast::report
