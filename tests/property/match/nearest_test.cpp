// For every policy, the solved budget of a `match:` comes nearest to the request, and results share the work of plain
// runs.
#include <catch2/catch.hpp>

#include <cmath>

#include "policies/all.hpp"
#include "property/policies/settings.hpp"
#include "study/match.hpp"

namespace kvcast::tests {
namespace {

using config::Node;

constexpr const char* kRun =
    "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 320, decode_tokens: 8}\n"
    "trace: {recipe: needle, layers: 1, steps: 3, window: 320}\n";

// Cost of a run with this budget, by a separate replay.
class Costs {
 public:
  explicit Costs(const std::string& run)
      : run_(run),
        trace_(study::make_trace(plain(64).run, plain(64).run.traces.front())),
        layers_(replay::prepare(*trace_, 1)) {}

  double operator()(const config::MatchChoice& request, std::int64_t budget) const {
    const study::Prepared p = plain(budget);
    const auto replayed = replay::replay(layers_, *study::make_policy(p), {.request = study::lengths_of(p.run)});
    return study::cost_of(request, p.run, *study::make_policy(p), replayed);
  }

 private:
  study::Prepared plain(std::int64_t budget) const {
    return study::prepare(
        config::parse_yaml(run_, "test").with("policy.budget", Node::scalar(std::to_string(budget), {})));
  }
  std::string run_;
  std::unique_ptr<trace::Trace> trace_;
  std::vector<std::unique_ptr<replay::Oracle>> layers_;
};

}  // namespace

TEST_CASE("no neighbour of the solved budget is nearer to the request, for every policy with a budget") {
  const Profiles profiles;
  TraceShape shape;
  shape.kv_heads = 8, shape.group = 4, shape.n_layers = 16;
  const std::string profile = profiles.of(shape);
  int solved = 0;
  for (const policy::Descriptor& d : policy::all_policies()) {
    if (!declares(d, "budget")) continue;
    const Node parameters = config::parse_yaml("{" + small_settings(d, 64, profile) + "}", "test").without({"budget"});
    std::string settings = "name: " + d.name;
    for (const auto& [key, value] : parameters.entries()) settings += ", " + key + ": " + value.text();
    const std::string run = kRun + ("policy: {" + settings + "}\n");
    const Costs costs(run);
    for (const char* quantity : {"tokens_attended", "bytes_read", "bytes_resident"}) {
      INFO(d.name << " " << quantity);
      const char* const unit = std::string(quantity).starts_with("bytes") ? " B" : "";
      const auto matched = [&](double value) {
        return config::parse_yaml(run + fmt::format("match: {{{}: {:.0f}{}}}\n", quantity, value, unit), "test");
      };
      const study::Prepared p = study::prepare(matched(100));
      const config::MatchChoice request = p.matched->request;
      const study::BudgetRange range = study::valid_budgets(matched(100), p);
      const auto cost = [&](std::int64_t budget) { return costs(request, budget); };
      const study::BudgetSolution reach = study::nearest_budget(cost, range, -1);
      const double lowest = reach.lowest, highest = reach.highest;
      CHECK_FALSE(reach.budget);
      CHECK(lowest <= highest);
      if (lowest == highest) continue;  // all pairs stay on the GPU, whatever a step attends to
      study::Study plan({{matched(std::round(lowest + 0.37 * (highest - lowest))), {}, {}}});
      plan.solve({});
      const study::Task& task = plan.tasks().front();
      INFO(task.refused);
      REQUIRE(task.refused.empty());
      const study::Matched& m = *task.prepared.matched;
      const std::int64_t budget = m.budget.value();
      CHECK(costs(m.request, budget) == Approx(m.reached));
      const auto error = [&](std::int64_t other) { return std::abs(costs(m.request, other) - m.request.value); };
      if (budget > range.low) CHECK(error(budget - 1) >= error(budget));
      if (budget < range.high) CHECK(error(budget + 1) >= error(budget));
      ++solved;
    }
  }
  CHECK(solved > 30);
}

}  // namespace kvcast::tests
