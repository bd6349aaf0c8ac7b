// Budgets that keep their share of all tokens seen.
#include <catch2/catch.hpp>

#include "policies/all.hpp"
#include "policy/growth.hpp"
#include "policy_parts/growing_budget.hpp"
#include "support/error_of.hpp"
#include "support/memory_trace.hpp"
#include "unit/policy/two_sequences.hpp"

namespace kvcast::tests {
namespace {

TEST_CASE("a budget grows in proportion to the tokens seen") {
  CHECK(policy::grown_budget(10, 40, 40) == 10);
  CHECK(policy::grown_budget(10, 40, 41) == 10);  // 10.25
  CHECK(policy::grown_budget(10, 40, 42) == 11);  // 10.5
  CHECK(policy::grown_budget(10, 40, 80) == 20);
  CHECK(policy::grown_budget(1, 1000, 1200) == 1);
}

TEST_CASE("each step reads what a fixed budget of its size would") {
  const MemoryTrace trace = random_trace({.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 40, .steps = 12}, 31);
  const auto layer = trace.load(0, 1);
  for (const auto& [name, setting] : {std::pair{"exact_topk", ""},
                                      {"quest", ", page: 2"},
                                      {"gsa",
                                       ", page: 2, sink: 1, "
                                       "recent: 1, dense_below: 0"}}) {
    const auto with_budget = [&, s = setting](std::int64_t budget) { return "budget: " + std::to_string(budget) + s; };
    const Selected got = select(name, with_budget(10) + ", budget_grows: true", *layer);
    int changes = 0;
    for (int t = 0; t < 12; ++t) {
      CAPTURE(name, t);
      const std::int64_t budget = policy::grown_budget(10, 40, 41 + t);
      const Selected fixed = select(name, with_budget(budget), *layer);
      const auto at = static_cast<std::size_t>(t);
      for (std::size_t h = 0; h < fixed.steps[at].heads.size(); ++h) {
        CHECK(got.steps[at].heads[h].attended == fixed.steps[at].heads[h].attended);
      }
      changes += budget != policy::grown_budget(10, 40, 40 + t) ? 1 : 0;
    }
    CHECK(changes == 3);  // 10.5, 11.5 and 12.5 at 42, 46 and 50 tokens
  }
}

TEST_CASE("work, memory and growth are those of the share at each context") {
  const auto policy = make("loki", "budget: 20, dims: 4, budget_grows: true", kHundred);
  CHECK(policy->growth(kHundred).attended == Approx(0.2));
  CHECK(policy->growth(kHundred).scored == 1);
  CHECK(policy->growth(kHundred).fill == 0);
  CHECK(make("loki", "budget: 200, budget_grows: true", kHundred)->growth(kHundred).fill == 200);  // covers all
  // A CPU reads two tokens more of 100 than of 90, and ranks 5 for each; those on the GPU are as many.
  const policy::Growth by_cpu =
      make("ctkvr", "budget: 20, sink: 2, recent: 4, budget_grows: true", kHundred)->growth(kHundred);
  const policy::HeadCounts later =
      policy::grown({.attended = 7, .cpu_attended = 18, .candidates = 90}, by_cpu, 90, 100);
  CHECK(later.attended == 7);
  CHECK(later.cpu_attended == 20);
  CHECK(later.candidates == 100);
  const config::Model model = small_model();
  const std::vector<policy::HeadCounts> heads(4, {.attended = 30, .scored = 150});
  const policy::Lengths longer{100, 60};
  policy::Recorder ops;
  policy->decode_layer(policy::EqualBatch(model, 0, 2, {150, longer}, heads, false), ops);
  CHECK(std::get<graph::TopK>(only(ops.ops(), "top-k").work).k == 30);
}

TEST_CASE("caches from which each step evicts grow with a share of all tokens seen") {
  const MemoryTrace trace =
      random_trace({.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 40, .steps = 12, .window = 40}, 31);
  const auto layer = trace.load(0, 1);
  const config::Model model = small_model();
  const policy::Lengths request{40, 12};
  for (const auto& [name, setting] : {std::pair{"tova", ", sink: 1"},
                                      {"h2o", ", sink: 2"},
                                      {"keydiff", ", recent_fraction: 0.2"},
                                      {"snapkv", ", decode_eviction: true, window: 4, pool_kernel: 3"},
                                      {"cake", ", decode_eviction: true, window: 4, layers: uniform"},
                                      {"keyl2norm", ", decode_eviction: true, recent: 3"}}) {
    const std::string text = std::string("budget: 10") + setting + ", budget_grows: true";
    const Selected got = select(name, text, *layer);
    const auto& before = got.resident.heads[0].attended;
    CHECK(before.size() == 10);
    std::size_t kept_all = 0;
    for (int t = 0; t < 12; ++t) {
      CAPTURE(name, t);
      const auto& head = got.steps[static_cast<std::size_t>(t)].heads[0];
      // One more than stay of the 40 + t tokens before; what a step drops brings it to the share of 41 + t.
      const auto last = static_cast<std::size_t>(policy::grown_budget(10, 40, 40 + t));
      CHECK(head.attended.size() == last + 1);
      CHECK(head.attended.size() - head.evicted.size() ==
            static_cast<std::size_t>(policy::grown_budget(10, 40, 41 + t)));
      kept_all += head.evicted.empty() ? 1 : 0;
    }
    CHECK(kept_all == 3);  // at 42, 46 and 50 tokens
    const auto policy = make(name, text, request);
    CHECK(policy->growth(request).attended == Approx(0.25));
    CHECK(policy->growth(request).fill == 0);
    // After 52 tokens 13 stay and the step attends to one more: 3 layers, 2 heads, keys and values of 8 numbers.
    const policy::MemoryShape shape{.model = &model, .batch = 1, .tokens = 52, .lengths = request};
    CHECK(policy->memory(shape).front().bytes == 14 * 3 * 2 * 2 * 8 * 2);
    // A budget of the whole prompt and more drops nothing.
    CHECK(make(name, std::string("budget: 40") + setting + ", budget_grows: true", request)->growth(request).attended ==
          1);
    const Selected all = select(name, std::string("budget: 40") + setting + ", budget_grows: true", *layer);
    CHECK(all.steps[11].heads[0].attended.size() == 52);
  }
}

TEST_CASE("work on a prompt read in blocks is that of the share at each block") {
  const config::Model model = small_model();
  const auto policy = make("keydiff", "budget: 20, block: 50, budget_grows: true", {100, 20});
  policy::Recorder ops;
  // 10 of the first 50 tokens stay; 60 are ranked after the second block, of which 20 stay.
  policy->prefill_layer({.model = &model, .prompt_tokens = 100, .start = 50, .decode_steps = 20}, ops);
  const auto best = std::get<graph::TopK>(only(ops.ops(), "top-k").work);
  CHECK(best.columns == 60);
  CHECK(best.k == 20);
}

TEST_CASE("budgets grow where all tokens stay on the GPU or are read by the CPU") {
  CHECK(error_of([] {
          make("h2o", "budget: 20, decode_eviction: false, budget_grows: true", kHundred);
        }).find("without decode_eviction") != std::string::npos);
  CHECK(error_of([] { make("keydiff", "share: 0.5, budget_grows: true", kHundred); }).find("share takes no") !=
        std::string::npos);
  CHECK(error_of([] {
          make("snapkv", "budget: 40, decode_eviction: true, block: 50, budget_grows: true", kHundred);
        }).find("leave out block") != std::string::npos);
  CHECK(make("cake", "budget: 40, decode_eviction: true, budget_grows: true", kHundred)->growth(kHundred).proportional);
  CHECK(error_of([] { make("snapkv", "budget: 20, budget_grows: true", kHundred); }) != "no error");
  CHECK(error_of([] { make("freekv", "budget: 20, budget_grows: true", kHundred); }) != "no error");
  CHECK(error_of([] { make("ctkvr", "budget: 20, budget_grows: true", kHundred); }) == "no error");
  CHECK(error_of([] {
          make("quest", "budget: 20, budget_convention: traffic, budget_grows: true", kHundred);
        }).find("a traffic budget sets the index") != std::string::npos);
  CHECK(error_of([] {
          make("twilight", "selector: {name: quest, budget: 20, budget_grows: true}", kHundred);
        }).find("must not set budget_grows") != std::string::npos);
}

}  // namespace
}  // namespace kvcast::tests
