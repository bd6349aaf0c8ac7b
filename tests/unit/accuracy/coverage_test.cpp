// Predicted scores without a published row, for other model shapes, short prompts and every method.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <utility>

#include "accuracy/evaluate.hpp"
#include "base/parallel.hpp"
#include "config/find.hpp"
#include "config/section.hpp"

namespace kvcast::tests {

using namespace accuracy;

namespace {

struct Case {
  const char *model, *context, *task;
};

// Groups of 1, 3, 7 and 8 query heads; scaled, unscaled and large rotary bases; 64 and 128 channels a head.
const Case kCases[] = {{"LongChat-7B-v1.5-32K", "2K", "single2"}, {"LongChat-7B-v1.5-32K", "1K", "qa-1"},
                       {"Llama-3.2-3B-Instruct", "2K", "vt"},     {"Llama-3.2-1B", "2K", "multikey1"},
                       {"Qwen2.5-7B-Instruct", "1K", "single1"},  {"Yi-9B-200K", "2K", "multiquery"},
                       {"Mistral-7B-Ins-v0.2", "2K", "fwe"}};
const char* const kBudgets[] = {"512", "1024",
                                "32768"};  // the last one covers all tokens, even divided by a group of 8

PublishedRow row(const Case& c, const std::string& paper, const std::string& method, const std::string& budget) {
  PublishedRow r;
  r.paper = paper, r.table = "none", r.method = method, r.budget = budget;
  r.model = c.model, r.benchmark = "RULER", r.context = c.context, r.task = c.task;
  r.budget_unit = "tokens";
  return r;
}

// Each method of the catalogue that RULER's rows can name, in its paper's tables or in those of another one.
std::vector<std::pair<std::string, std::string>> methods() {
  std::vector<std::pair<std::string, std::string>> out;
  const config::Node list = config::load_yaml(config::find_config("accuracy", "methods", {}));
  for (const config::Node& node : list.items()) {
    if (node.find("benchmarks") != nullptr || node.find("contexts") != nullptr || node.find("refused") != nullptr) {
      continue;
    }
    const config::Node* const papers = node.find("papers");
    out.emplace_back(papers != nullptr ? papers->items().at(0).text() : "another",
                     node.find("methods")->items().at(0).text());
  }
  return out;
}

TEST_CASE("every method scores on every model shape: in full with all tokens, and never much lower with more of them",
          "[minutes]") {
  std::vector<PublishedRow> rows;
  for (const Case& c : kCases) {
    std::map<std::string, bool> papers;
    for (const auto& [paper, method] : methods()) {
      if (!std::exchange(papers[paper], true)) {
        rows.push_back(row(c, paper, "Full-KV", "full"));
        rows.back().value = 100;
      }
      for (const char* budget : kBudgets) rows.push_back(row(c, paper, method, budget));
    }
  }
  ScoreComparison plan = make_comparison(rows, Catalogue());
  EvaluateOptions options;
  options.plan.seeds = 1;
  options.threads = hardware_threads();
  const RecallMap link = score::read_recall_map(config::find_config("accuracy", "link", {}));
  evaluate(plan, link, options);
  REQUIRE(plan.cells.size() == std::size(kCases) * methods().size() * std::size(kBudgets));
  double before = 0;
  for (const Cell& cell : plan.cells) {
    CAPTURE(cell.row.model, cell.row.task, cell.row.paper, cell.row.method, cell.row.budget, cell.refused);
    REQUIRE(cell.refused.empty());
    CHECK(cell.predicted >= 0);
    CHECK(cell.predicted <= 100);
    CHECK(cell.low <= cell.predicted);
    CHECK(cell.high >= cell.predicted);
    const bool has_budget = cell.policy.parameters.find("budget") != nullptr;
    if (has_budget && cell.row.budget == kBudgets[2]) CHECK(cell.predicted == 100);
    // A tenth: one trace, and pages and dimensions that follow from the budget.
    if (cell.row.budget != kBudgets[0]) CHECK(cell.predicted >= before - 10);
    before = cell.predicted;
  }
}

// All replays have the same shares of the kinds of heads. The attention of retrieving heads on targets, per head that
// does not retrieve, is therefore comparable between models with groups of the same size.
TEST_CASE("needles draw similar attention for every embedding and prompt length") {
  const config::PolicyChoice full = config::read_policy(config::parse_yaml("{name: full}", "test"));
  std::vector<TraceRequest> traces;
  for (const char* model : {"llama-3.1-8b", "mistral-7b-v0.2", "llama-3-8b-262k", "llama-3-8b-1048k"}) {
    for (const std::int64_t prompt : {2048, 8192}) traces.push_back({"ruler-single2", model, prompt, 3, 1});
  }
  RecallReplays samples("", hardware_threads());
  for (const TraceRequest& trace : traces) samples.request(trace, full);
  samples.run([](std::int64_t, std::int64_t) {});
  const auto drawn = [&](const TraceRequest& trace) {
    const replay::TargetRecall& recall = samples.recall(trace, full);
    double mass = 0;
    for (const replay::StepRecall& step : recall.steps) mass += step.full;
    return mass / recall.other_full;
  };
  const double expected = drawn(traces[1]);
  for (const TraceRequest& trace : traces) {
    CAPTURE(trace.model, trace.prompt_tokens);
    CHECK(drawn(trace) == Approx(expected).epsilon(0.25));
  }
}

}  // namespace
}  // namespace kvcast::tests
