#include "config/answer_lengths.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/build.hpp"
#include "config/section.hpp"

namespace kvcast::config {
namespace {

struct Published {
  double budget = 0, tokens = 0;
};

std::vector<Published> read_points(const Node& list) {
  std::vector<Published> points;
  for (const Node& row : list.items()) {
    points.push_back(
        {read_number(row.items().at(0), "budget", 1, 1e9), read_number(row.items().at(1), "tokens", 1, 1e9)});
  }
  return points;
}

}  // namespace

double published_length_factor(const PolicyChoice& policy, const SourceLocation& asked_at) {
  Section table(load_yaml(data_dir() + "/configs/accuracy/answer_lengths.yaml"), "answer lengths");
  table.text("source");
  const double uncompressed = table.number("uncompressed", 1, 1e9);
  const Node policies = table.node("policies");
  table.finish();
  std::vector<std::string> known;
  for (const auto& [name, points] : policies.entries()) known.push_back(name);
  const Node* const of_policy = policies.find(policy.name);
  if (of_policy == nullptr) {
    throw UserError(
        asked_at, fmt::format("length_factor: no lengths of answers are published for {}; give a number", policy.name),
        known);
  }
  if (of_policy->items().empty()) return 1;
  const Node* const budget = policy.parameters.find("budget");
  if (budget == nullptr)
    throw UserError(asked_at, "length_factor: `published` depends on the policy's budget, which is not written");
  const double tokens = read_number(*budget, "budget", 1, 1e9);
  const std::vector<Published> points = read_points(*of_policy);
  if (tokens < points.front().budget || tokens > points.back().budget) {
    throw UserError(
        asked_at,
        fmt::format("length_factor: lengths of answers are published for budgets of {} to {}, not {}; give a number",
                    points.front().budget, points.back().budget, tokens));
  }
  std::size_t i = 0;
  while (i + 2 < points.size() && points[i + 1].budget < tokens) ++i;
  const Published &low = points[i], &high = points[i + 1];
  const double share = std::log(tokens / low.budget) / std::log(high.budget / low.budget);
  return (low.tokens + share * (high.tokens - low.tokens)) / uncompressed;
}

}  // namespace kvcast::config
