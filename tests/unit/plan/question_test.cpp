// Valid plans, and the messages for invalid ones.
#include "plan/question.hpp"

#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "plan/key.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {
namespace {

using namespace plan;
using Catch::Contains;
using config::Node;

constexpr const char* kRun =
    "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: {name: quest, budget: 256}\n"
    "workload: {prompt_tokens: 1024, decode_tokens: 32, batch: 2}\ntrace: {recipe: needle, layers: 1, steps: 4}\n";

Node node(const std::string& text) { return config::parse_yaml(text, "plan.yaml"); }
std::string error_of_plan(const std::string& question) {
  return error_of([&] { read_plan(node(std::string(kRun) + "plan:\n  - " + question + "\n")); });
}

TEST_CASE("a key is found in the workload, the policy and the machine") {
  const Node run = node(kRun);
  const VariedKey batch = find_key(run, "workload.batch", {});
  CHECK(batch.integer);
  CHECK(batch.now == 2);
  const VariedKey budget = find_key(run, "policy.budget", {});
  CHECK(budget.integer);
  CHECK(budget.now == 256);
  const VariedKey bandwidth = find_key(run, "hardware.gpu.hbm_bandwidth", {});
  CHECK_FALSE(bandwidth.integer);
  CHECK(bandwidth.now == Approx(1.555e12));
  const VariedKey curve = find_key(run, "hardware.link.issue_call", {});
  CHECK(curve.factor);
  CHECK(curve.now == 1);
  CHECK(find_key(run, "hardware.host.cores", {}).integer);
  CHECK_THAT(error_of([&] { find_key(run, "policy.budgt", {}); }), Contains("did you mean \"policy.budget\""));
  CHECK_THAT(error_of([&] { find_key(run, "policy.group", {}); }), Contains("is not a numeric key"));
}

TEST_CASE("values of a key are quantities, integers or factors, and are written as they are read") {
  const Node run = node(kRun);
  const VariedKey bandwidth = find_key(run, "hardware.gpu.hbm_bandwidth", {});
  CHECK(read_value(bandwidth, node("2 TB/s")) == 2e12);
  CHECK(read_value(bandwidth, node("x2")) == Approx(2 * 1.555e12));
  CHECK_THAT(error_of([&] { read_value(bandwidth, node("2 GB")); }), Contains("hbm_bandwidth"));
  const VariedKey batch = find_key(run, "workload.batch", {});
  CHECK(read_value(batch, node("x4")) == 8);
  CHECK_THAT(error_of([&] { read_value(batch, node("2.5")); }), Contains("plan.yaml:1:1"));
  CHECK_THAT(error_of([&] { read_value(batch, node("x0.1")); }), Contains("outside of 1 to 65536"));
  const VariedKey curve = find_key(run, "hardware.link.issue_call", {});
  CHECK_THAT(error_of([&] { read_value(curve, node("2 us")); }), Contains("expected a factor"));
  // Nine digits: the simulated value equals the proposed one.
  const Node changed = with_value(run, bandwidth, 1.23456789e12);
  CHECK(find_key(changed, "hardware.gpu.hbm_bandwidth", {}).now == Approx(1.23456789e12).epsilon(1e-9));
  CHECK(find_key(with_value(run, batch, 7), "workload.batch", {}).now == 7);
}

TEST_CASE("batch sizes are limited by the engine") {
  const Node engine = node(std::string(kRun) + "framework: {max_batch: 8}\n");
  const VariedKey batch = find_key(engine, "workload.batch", {});
  CHECK(end_of_range(batch, 64, engine) == 8);
  CHECK(end_of_range(batch, 4, engine) == 4);
  CHECK(end_of_range(batch, 64, node(kRun)) == 64);
  // A run with a larger batch is rejected, a choice among several omits it.
  const std::string plan = std::string(kRun) + "framework: {max_batch: 8}\nplan:\n  - choose: {workload.batch: ";
  CHECK(error_of([&] { read_plan(node(plan + "[4, 16]}\n")); }) == "no error");
  CHECK_THAT(error_of([&] { read_plan(node(plan + "[16, 32]}\n")); }), Contains("framework.max_batch"));
}

TEST_CASE("labels name the policy first, then the other settings") {
  CHECK(label_of({{"hardware", "l40s"}, {"policy.name", "quest"}, {"policy.budget", "512"}, {"workload.batch", "4"}}) ==
        "quest, budget 512, on l40s, batch 4");
  CHECK(label_of({{"hardware.link.pcie.generation", "6"}}) == "PCIe 6");
  CHECK(label_of({{"workload.batch", "4"}, {"hardware", "l40s"}}) == "l40s, batch 4");
}

TEST_CASE("a label states the default budget of a policy, unless the question varies it") {
  const Node run = node(kRun);
  CHECK(read_variant(run, node("{policy: quest}")).label == "quest, budget 2048");
  CHECK(read_variant(run, node("{policy: quest}"), {"policy.budget"}).label == "quest");
  CHECK(read_variant(run, node("{policy: full}")).label == "full");
  CHECK(read_variant(run, node("{policy: {name: quest, budget: 512}}")).label == "quest, budget 512");
}

TEST_CASE("a variant is labelled with the run's policy if the other one changes the policy") {
  const Node run = node(kRun);
  const auto labels = [&run](const std::string& a, const std::string& b) {
    Variant of = read_variant(run, node(a)), against = read_variant(run, node(b));
    tell_apart(of, against);
    return of.label + " against " + against.label;
  };
  CHECK(labels("{policy.page: 32}", "{policy: full}") == "quest, page 32 against full");
  CHECK(labels("{policy: full}", "{hardware: l40s}") == "full against quest, on l40s");
  CHECK(labels("{policy.page: 32}", "{policy.page: 8}") == "page 32 against page 8");
}

TEST_CASE("answers state the values of integer keys as integers") {
  const Node run = node(kRun);
  CHECK(json_of(find_key(run, "workload.batch", {}), 8).dump() == "8");
  CHECK(json_of(find_key(run, "hardware.gpu.hbm_bandwidth", {}), 2e12).dump() == "2000000000000.0");
}

TEST_CASE("invalid plans are rejected before any run, with the location and the valid names") {
  CHECK_THAT(error_of([] { read_plan(node(kRun)); }), Contains("a plan needs `plan:`"));
  CHECK_THAT(error_of_plan("whi: {}"), Contains("plan.yaml:7:5") && Contains("did you mean \"why\""));
  CHECK_THAT(error_of_plan("{why: {}, map: {}}"), Contains("expected a question"));
  const std::string even = "break_even: {key: workload.batch, from: 1, to: 8, metric: tpot, of: {policy: quest}, ";
  CHECK(error_of_plan(even + "against: {policy: full}}") == "no error");
  CHECK_THAT(error_of_plan(even + "against: {policy: ful}}"), Contains("ful"));
  CHECK_THAT(error_of_plan(even + "targets: {tpot: <= 1 s}}"), Contains("`targets` name their metrics themselves"));
  CHECK_THAT(error_of_plan(even + "against: {policy: [full, quest]}}"), Contains("a list means several"));
  CHECK_THAT(error_of_plan(even + "against: {policy: quest}}"), Contains("are the same settings"));
  CHECK_THAT(error_of_plan(even + "against: {policy: full, workload.batch: 3}}"),
             Contains("workload.batch is set to 3 here, but the question varies it"));
  // A page has 16 tokens, and a window 32: the default range begins at the smallest budget that the policy accepts.
  CHECK(error_of_plan("largest: {key: policy.budget, of: {policy: quest}}") == "no error");
  CHECK(error_of_plan("largest: {key: policy.budget, of: {policy: snapkv}}") == "no error");
  CHECK_THAT(error_of_plan("largest: {key: workload.batch, of: {policy: full, workload.batch: 7}}"),
             Contains("workload.batch is set to 7 here"));
  CHECK_THAT(error_of_plan("break_even: {key: workload.batch, from: 8, to: 2, targets: {tpot: <= 1 s}}"),
             Contains("must be above `from`"));
  CHECK_THAT(error_of_plan("break_even: {key: workload.batch, from: 1, to: 2}"), Contains("give either `against`"));
  CHECK_THAT(
      error_of_plan("break_even: {key: workload.prompt_tokens, from: 1024, to: 999999, targets: {tpot: <= 1 s}}"),
      Contains("can attend to"));
  CHECK_THAT(error_of_plan("largest: {key: hardware.gpu.clock}"), Contains("needs `from`"));
  CHECK_THAT(error_of_plan("why: {of: {policy: quest}, against: {policy: full}, metric: hbm}"),
             Contains("has no parts"));
  CHECK_THAT(error_of_plan("sensitivities: {metric: nothing}"), Contains("unknown metric"));
  CHECK_THAT(error_of_plan("choose: {targets: {tpot: <= 1 s}}"), Contains("no lists to choose from"));
  CHECK_THAT(error_of_plan("choose: {hardware: [l40s, h200], price_per_hour: {l40s: 1}}"), Contains("missing: h200"));
  CHECK_THAT(error_of_plan("choose: {hardware: [l40s], price_per_hour: {l40: 1}}"), Contains("did you mean \"l40s\""));
  // Names and aliases of one machine are the same machine.
  CHECK(error_of_plan("choose: {hardware: [a100_pcie], price_per_hour: {a100-40gb-pcie4: 1}}") == "no error");
  CHECK(error_of_plan("choose: {hardware: [h100-sxm, l40s], price_per_hour: {h100: 3, l40s: 1}}") == "no error");
  CHECK_THAT(error_of_plan("choose: {hardware: [h100, h100-sxm]}"),
             Contains("plan.yaml:7:") && Contains("h100-sxm is the same as h100"));
  // A limit on a cost needs a price, and the run and the question agree about it.
  CHECK_THAT(error_of_plan("choose: {hardware: [l40s, h200], targets: {cost: <= 1}}"),
             Contains("plan.yaml:7:") && Contains("needs price_per_hour of every machine; missing: l40s, h200"));
  const std::string priced = std::string(kRun) + "price_per_hour: 2\nplan:\n  - choose: {policy: [full, quest]";
  CHECK(error_of([&] { read_plan(node(priced + ", objective: cheapest}\n")); }) == "no error");
  CHECK(error_of([&] { read_plan(node(priced + ", price_per_hour: {a100-40gb-pcie4: 2}}\n")); }) == "no error");
  CHECK_THAT(error_of([&] { read_plan(node(priced + ", price_per_hour: {a100-40gb-pcie4: 3}}\n")); }),
             Contains("plan.yaml:8:") && Contains("is 3 here, but the run states 2"));
  // A floor belongs to the run, not to a setting.
  CHECK_THAT(error_of_plan("choose: {score.floor: [50 %, 90 %]}"),
             Contains("plan.yaml:7:") && Contains("score.floor affects conclusions, not results"));
  CHECK_THAT(
      error_of_plan("map: {x: workload.batch, y: workload.batch, from: [1, 1], to: [4, 4], policies: [full, quest]}"),
      Contains("the same key"));
  CHECK_THAT(error_of_plan(
                 "map: {x: workload.batch, y: workload.prompt_tokens, from: [1], to: [4, 4], policies: [full, quest]}"),
             Contains("expected [x, y]"));
}
TEST_CASE("a plan stops on request, and says nothing about what it did not run") {
  std::stop_source stop;
  study::StudyOptions options;
  options.cancel = stop.get_token();
  int done = 0;
  Experiments experiments(options, [&](const study::Task&, const result::Result&) { ++done, stop.request_stop(); });
  const Node run = node(kRun);
  CHECK_THROWS_AS(experiments.run({run, run.with("policy.budget", Node::scalar("128", {}))}), Cancelled);
  CHECK(done == 1);
}

}  // namespace
}  // namespace kvcast::tests
