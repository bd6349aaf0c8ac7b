#include "score/published_method.hpp"

#include <algorithm>

#include "policies/all.hpp"

namespace kvcast::score {
namespace {

bool is_of_policy(const MethodSpec& m, const std::string& policy) {
  const config::Node* const name = m.policy.kind() == config::Node::Kind::kMap ? m.policy.find("name") : nullptr;
  return name != nullptr && name->text() == policy;
}

// Compares all settings except for the budget and those that may have any value.
bool has_settings(const config::PolicyChoice& policy, const MethodSpec& m) {
  const auto settings = [&](const config::Node& parameters) {
    std::vector<std::string_view> dropped(m.any_value.begin(), m.any_value.end());
    dropped.insert(dropped.end(), {"name", "budget"});
    return policy::ParameterValues(policy::find_policy(policy), parameters.without(dropped)).all();
  };
  return is_of_policy(m, policy.name) && settings(m.policy) == settings(policy.parameters);
}

}  // namespace

PublishedMethod published_method(const Catalogue& catalogue, const config::PolicyChoice& policy,
                                 const std::string& benchmark) {
  PublishedMethod similar{"", bare_name(policy.name), nullptr};
  bool any = false;
  for (const MethodSpec& m : catalogue.methods()) {
    if (!is_of_policy(m, policy.name) || m.methods.empty()) continue;
    const auto fits = [&](const std::string& b) { return bare_name(b) == bare_name(benchmark); };
    if (!m.benchmarks.empty() && std::ranges::none_of(m.benchmarks, fits)) continue;
    if (has_settings(policy, m)) return {m.papers.empty() ? "" : m.papers.front(), bare_name(m.methods.front()), &m};
    if (!any) similar.method = bare_name(m.methods.front()), any = true;
  }
  return similar;
}

std::set<std::string> papers_with_settings(const ScoreModel& model, const PublishedMethod& published,
                                           const config::PolicyChoice& policy, const std::string& benchmark) {
  std::set<std::string> all, papers;
  for (const evidence::ScoreRecord& r : model.evidence().records()) {
    if (r.benchmark == benchmark && r.method == published.method) all.insert(r.paper);
  }
  for (const std::string& paper : all) {
    PublishedRow row;
    row.paper = paper, row.method = published.method, row.benchmark = benchmark;
    const MethodSpec* const m = model.catalogue.method(row);
    if (m != nullptr && (m == published.spec || (m->papers.empty() && has_settings(policy, *m)))) papers.insert(paper);
  }
  return papers;
}

}  // namespace kvcast::score
