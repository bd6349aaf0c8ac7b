// Plans as users run them: the supplied plans, the JSON that programs read, stores, and errors.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "app/process.hpp"
#include "store/store.hpp"

namespace kvcast::tests {

using Catch::Contains;
using nlohmann::json;

namespace {

constexpr const char* kPlan =
    "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: {name: quest, budget: 256}\nscore: none\n"
    "workload: {prompt_tokens: 1024, decode_tokens: 16, batch: 2}\ntrace: {recipe: needle, layers: 1, steps: 4}\n"
    "plan:\n"
    "  - break_even: {key: workload.batch, from: 1, to: 16, metric: decode.tokens_per_s, of: {policy: quest}, against: "
    "{policy: full}}\n"
    "  - largest: {key: workload.batch, targets: {decode.tpot_s.p99: '<= 50 ms'}, to: 8}\n"
    "  - why: {metric: decode.tpot_s.mean, of: {policy: quest}, against: {policy: full}}\n"
    "  - sensitivities: {metric: decode.tokens_per_s, keys: [hardware.gpu.hbm_bandwidth, workload.batch]}\n"
    "  - choose: {hardware: [a100-40gb-pcie4, l40s], policy: [full, {name: quest, budget: 256}], price_per_hour: "
    "{a100-40gb-pcie4: 3, l40s: 1}}\n"
    "  - map: {x: workload.batch, y: hardware.gpu.hbm_bandwidth, from: [1, x0.5], to: [4, x2], policies: [full, "
    "quest]}\n";

// The run of the plan above with another question.
std::string plan_with(const std::string& question) {
  const std::string plan(kPlan);
  return plan.substr(0, plan.find("  - break_even")) + "  - " + question + "\n";
}

// Returns the answer to a single question.
json answer_to(const std::string& question, const std::vector<std::string>& settings = {}) {
  const Scratch scratch;
  std::vector<std::string> arguments = {"plan", scratch.write("plan.yaml", plan_with(question)), "--json"};
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  const Output out = kvcast(arguments);
  INFO(question << out.err);
  REQUIRE(out.code == 0);
  return json::parse(out.out)["answers"][0];
}

}  // namespace

TEST_CASE("a plan answers its questions in order, as text and as JSON", "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("plan.yaml", kPlan);
  const Output text = kvcast({"plan", config});
  REQUIRE(text.code == 0);
  CHECK_THAT(text.out, Contains("does quest, budget 2048 beat full in decode throughput?") &&
                           Contains("What is the largest workload.batch") && Contains("experiments)"));
  const json answers = json::parse(kvcast({"plan", config, "--json"}).out)["answers"];
  const std::vector<std::string> kinds = {"break_even", "largest", "why", "sensitivities", "choose", "map"};
  REQUIRE(answers.size() == kinds.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    CHECK(answers[i]["kind"] == kinds[i]);
    CHECK(answers[i]["runs"] > 0);
    CHECK_FALSE(answers[i]["text"].get<std::string>().empty());
  }
  CHECK(answers[0]["crossings"].is_array());
  CHECK(answers[0].contains("always"));
  for (const json& crossing : answers[0]["crossings"]) CHECK(crossing["value"].is_number_integer());
  for (const json& sample : answers[0]["samples"]) CHECK(sample["x"].is_number_integer());
  CHECK(answers[1]["value"].dump() == "8");
  CHECK(answers[1]["range"].dump() == "[1,8]");
  CHECK(answers[1]["limited_by"].is_null());
  CHECK(answers[2]["parts"][0]["seconds"].is_number());
  CHECK(answers[3]["sensitivities"][0]["key"] == "workload.batch");  // throughput nearly doubles with it
  CHECK(answers[4]["best"][0]["metrics"]["cost_per_million_tokens"] > 0);
  CHECK(answers[4]["front"].size() >= 1);
  CHECK(answers[5]["cells"].size() >= 8);
  CHECK(answers[5]["cells"][0]["x"].is_number_integer());
  CHECK(answers[5]["borders"].is_array());
}

TEST_CASE("a break-even is open only where the other variant may be better", "[minutes]") {
  // Steps of 8K tokens take SnapKV a ninth less time than full KV. It needs less memory as well, so that full KV never
  // fits alone.
  const std::vector<std::string> settings = {"hardware.gpu.hbm_capacity=6 GB", "workload.prompt_tokens=8192",
                                             "workload.prefill=whole"};
  const auto question = [](const std::string& policy) {
    return fmt::format(
        "break_even: {{key: workload.batch, from: 1, to: 64, metric: decode.tokens_per_s, of: {{policy: {{name: {}, "
        "budget: 64}}}}, against: {{policy: full}}}}",
        policy);
  };
  const json less = answer_to(question("snapkv"), settings), more = answer_to(question("quest"), settings);
  CHECK(less["always"] == "snapkv, budget 64");
  CHECK_THAT(less["text"].get<std::string>(), Contains("at which either fits; neither fits from 5 on."));
  // Quest keeps summaries in addition to the whole cache: with somewhat less memory full KV is the only one that fits.
  CHECK(more["always"] == "quest, budget 64");
  CHECK_THAT(more["text"].get<std::string>(), Contains("though uncertain costs or memory leave this open in part"));
}

TEST_CASE("a target on the prefill reports the bottleneck of the prefill") {
  const Scratch scratch;
  const std::string plan(kPlan);
  const std::string run = plan.substr(0, plan.find("  - break_even"));
  const std::string config = scratch.write(
      "plan.yaml", run + "  - largest: {key: workload.batch, to: 8, of: {policy: full}, targets: {ttft: '<= 1 s'}}\n");
  // 8 prompts of 1024 tokens are compute-bound; steps read 2.5 GB of weights for 8 sequences.
  const json answer = json::parse(kvcast({"plan", config, "--json"}).out)["answers"][0];
  CHECK(answer["binding_resource"] == "tensor cores");
  CHECK_THAT(answer["details"].dump(), Contains("bottleneck of the prefill tensor cores"));
}

TEST_CASE("a target on the score is refused if the run has no score") {
  const Scratch scratch;
  const std::string plan(kPlan);
  const std::string run = plan.substr(0, plan.find("  - break_even"));
  for (const char* question : {"  - largest: {key: workload.batch, targets: {score: '>= 95 %'}}\n",
                               "  - choose: {policy: [full, quest], targets: {score: '>= 95 %'}}\n"}) {
    const Output out = kvcast({"plan", scratch.write("plan.yaml", run + question)});
    CHECK(out.code == 2);
    CHECK_THAT(out.err, Contains("plan.yaml:8:") && Contains("the run says `score: none`"));
  }
}

TEST_CASE("a question about a missing metric is refused with the key that provides it", "[minutes]") {
  const Scratch scratch;
  const std::string even =
      "break_even: {key: workload.batch, from: 1, to: 4, of: {policy: kivi}, against: {policy: full}, metric: ";
  const std::string map =
      "map: {x: workload.batch, y: workload.prompt_tokens, from: [1, 512], to: [2, 1024], policies: [full, quest], "
      "metric: ";
  const std::string price = "kivi has none: no price is stated: set `price_per_hour`";
  for (const auto& [question, why] : std::vector<std::pair<std::string, std::string>>{
           {even + "cost}", "request.cost_per_million_output_tokens: " + price},
           {even + "score}", "the run says `score: none`: name a benchmark, such as `score: ruler`"},
           {even + "predicted}", "accuracy.task.share_of_full: kivi has none: either the trace has no task"},
           {even + "build.seconds}", "build.seconds: kivi has none: plans do not build an index by itself"},
           {map + "cost}", "full has none, and neither has any other policy: no price is stated: set `price_per_hour`"},
           {map + "score}", "the run says `score: none`"},
           {"break_even: {key: workload.batch, from: 1, to: 4, of: {policy: kivi}, targets: {cost: <= 0.5}}", price},
           {"largest: {key: workload.batch, to: 4, targets: {cost: <= 0.5}}",
            "request.cost_per_million_output_tokens: the run has none: no price is stated: set `price_per_hour`"}}) {
    INFO(question);
    const Output out = kvcast({"plan", scratch.write("plan.yaml", plan_with(question))});
    CHECK(out.code == 2);
    CHECK_THAT(out.err, Contains("plan.yaml:8:") && Contains(why));
  }
}

TEST_CASE("a policy without a map's metric is no candidate, and a map without a second best has no factor") {
  const json answer = answer_to(
      "map: {x: workload.batch, y: workload.prompt_tokens, from: [1, 512], to: [2, 1024], policies: [kivi, full], "
      "metric: predicted}");
  for (const json& cell : answer["cells"]) {
    CHECK(cell["best"] == "full");
    CHECK(cell["times"].is_null());
    CHECK(cell["told_apart"].is_null());
  }
  CHECK_THAT(answer["details"].dump(), Contains("kivi is no candidate where it has no accuracy.task.share_of_full: "));
  // A factor belongs to a simulated cell and is not copied to the cells that are inferred from it.
  const json both = answer_to(
      "map: {x: workload.batch, y: hardware.gpu.hbm_bandwidth, from: [1, x0.5], to: [16, x2], policies: [full, "
      "{name: quest, budget: 256}]}");
  int inferred = 0;
  for (const json& cell : both["cells"]) {
    inferred += cell["simulated"] == false;
    CHECK(cell["times"].is_number() == cell["simulated"].get<bool>());
    CHECK(cell["told_apart"].is_boolean());
  }
  CHECK(inferred > 0);
}

TEST_CASE("a choice uses the price of the question or of the run, and respects targets on the cost", "[minutes]") {
  const std::string choose = "choose: {policy: [full, quest], workload.batch: [1, 8], ";
  const auto cost = [](const json& answer) {
    return answer["best"][0]["metrics"]["cost_per_million_tokens"].get<double>();
  };
  const json asked = answer_to(choose + "price_per_hour: {a100_pcie: 3}}");
  CHECK(asked["objective"] == "cheapest");
  CHECK(asked["best"][0]["metrics"]["request.cost_per_million_output_tokens"] == cost(asked));
  for (const json& entry : asked["front"]) {
    CHECK(entry["config"].contains("policy.budget") == (entry["config"]["policy.name"] == "quest"));
  }
  const json of_run = answer_to(choose + "objective: cheapest}", {"price_per_hour=3"});
  CHECK(cost(of_run) == cost(asked));
  // The cost per token is least at batch 8: a limit just above it rules out batch 1 and nothing else.
  const std::string limit = std::to_string(1.001 * cost(asked));
  const json held = answer_to(choose + "price_per_hour: {a100_pcie: 3}, targets: {cost: <= " + limit + "}}");
  REQUIRE(held["best"].size() >= 1);
  CHECK(cost(held) == cost(asked));
  const json fast = answer_to(choose + "objective: fastest, price_per_hour: {a100_pcie: 3}}");
  CHECK_THAT(fast["details"].dump(), Contains("Pareto front over output tokens per second, memory and cost"));
  CHECK_THAT(answer_to("choose: {policy: [full, quest]}")["details"].dump(),
             Contains("Pareto front over output tokens per second and memory ("));
}

TEST_CASE("an answer that compares scores states which loss of a rounded cache they leave out", "[minutes]") {
  const Scratch scratch;
  const std::string score =
      "score=" + scratch.write("tasks.yaml", "one: {recipe: niah, steps: 4, score: exact, context: 1024}\n");
  const auto details = [&](const std::string& caches) {
    return answer_to("choose: {deployment.kv_cache: " + caches + ", targets: {score: '>= 1 %'}}", {score})["details"]
        .dump();
  };
  CHECK_THAT(details("[bf16, fp8]"), Contains("leave out the loss from reading rounded values"));
  CHECK_THAT(details("[bf16]"), !Contains("rounded"));
}

TEST_CASE("settings beyond the engine's batch are counted as settings that were not simulated") {
  const json answer =
      answer_to("choose: {policy: [full, quest], workload.batch: [1, 2, 16, 32]}", {"framework={max_batch: 8}"});
  CHECK(answer["question"] == "Which of 8 settings is the fastest, prompts included?");
  CHECK(answer["ruled_out"]["framework.max_batch"] == 4);
  const std::string details = answer["details"].dump();
  CHECK_THAT(details, Contains("Excluded without a simulation: 4 by framework.max_batch") &&
                          !Contains("Excluded among the settings") && Contains("experiments for 8 settings"));
}

TEST_CASE("bottlenecks are those of the metric's phase, and targets that only larger values meet are found") {
  const Scratch scratch;
  const std::string run =
      "model: llama-3.1-8b\nhardware: a100-80gb-sxm\npolicy: full\nscore: none\n"
      "workload: {prompt_tokens: 4096, decode_tokens: 16}\ntrace: {recipe: needle, layers: 1, steps: 2}\nplan:\n"
      "  - sensitivities: {metric: prefill.ttft_s, keys: [hardware.gpu.tensor_flops]}\n"
      "  - sensitivities: {metric: decode.tpot_s.mean, keys: [hardware.gpu.hbm_bandwidth]}\n"
      "  - largest: {key: hardware.gpu.hbm_bandwidth, from: x0.25, to: x4, targets: {decode.tpot_s.mean: '<= 10 ms'}}\n"
      "  - largest: {key: workload.batch, from: 400, to: 800}\n"
      "  - map: {x: workload.batch, y: workload.prompt_tokens, from: [1, 1024], to: [2, 2048], policies: [full, "
      "quest]}\n";
  const Output out = kvcast({"plan", scratch.write("plan.yaml", run), "--json"});
  REQUIRE(out.code == 0);
  const json answers = json::parse(out.out)["answers"];
  CHECK(answers[0]["binding_resource"] == "tensor cores");
  CHECK(answers[1]["binding_resource"] == "HBM bandwidth");
  // Weights of 16 GB take 8 ms at 2 TB/s: the GPU meets 10 ms, and misses it at a quarter of its bandwidth.
  CHECK(answers[2]["value"].get<double>() ==
        Catch::Detail::Approx(4 * 2.039e12).epsilon(0.01));  // the end of the range
  CHECK_THAT(answers[2]["text"].get<std::string>(), Contains("the range ends there"));
  CHECK(answers[3]["value"].is_null());
  CHECK_THAT(answers[3]["text"].get<std::string>(), Contains("None from 400 to 800: 400 does not fit in GPU memory"));
  CHECK_THAT(answers[4]["text"].get<std::string>(), Contains("Best of those that fit, with no floor on the score: "));
}

TEST_CASE("a plan's experiments and answers are stored, and a second plan reuses the replays", "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("plan.yaml", kPlan), dir = scratch / "out";
  REQUIRE(kvcast({"plan", config, "-o", dir}).code == 0);
  using kvcast::store::Store;
  const auto answers = Store::open(dir, Store::Open::kExisting).answers();
  REQUIRE(answers.size() == 6);
  CHECK(answers[2].kind == "why");
  CHECK(answers[2].data["of"] == "quest, budget 2048");
  CHECK(Store::open(dir, Store::Open::kExisting).count(kvcast::result::Status::kOk) > 10);
  const Output again = kvcast({"plan", config, "-o", dir, "--json"});
  CHECK(again.code == 0);
  CHECK(json::parse(again.out)["answers"][2]["difference"] == answers[2].data["difference"]);
}

TEST_CASE("--set changes the run of a plan, and errors name their location") {
  const Scratch scratch;
  const std::string config = scratch.write("plan.yaml", kPlan);
  const json small = json::parse(kvcast({"plan", config, "--json", "--set", "hardware=l40s"}).out);
  const json other = json::parse(kvcast({"plan", config, "--json"}).out);
  CHECK(small["answers"][2]["seconds"]["against"] != other["answers"][2]["seconds"]["against"]);
  const std::string wrong = scratch.write("wrong.yaml", std::string(kPlan) + "  - larger: {key: workload.batch}\n");
  const Output refused = kvcast({"plan", wrong});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err,
             Contains("wrong.yaml:14:5") && Contains("did you mean \"largest\"") && Contains("break_even"));
  CHECK(kvcast({"plan", "configs/runs/quickstart.yaml"}).code == 2);
}

TEST_CASE("every ready plan answers all of its questions", "[minutes]") {
  const Scratch scratch;
  for (const auto& entry : std::filesystem::directory_iterator(KVCAST_SOURCE_DIR "/configs/plans")) {
    INFO(entry.path());
    // Prompts are short, steps and requests few and scores absent: the test checks that questions have answers, not
    // their values.
    const std::string text = slurp(entry.path().string());
    std::string small = text;
    for (const auto& [from, to] : {std::pair{"65536", "8192"},
                                   {"prompt_tokens: 32768", "prompt_tokens: 4096"},
                                   {"to: 32768", "to: 8192"},
                                   {"prompt_tokens: 126976", "prompt_tokens: 4096"},
                                   {"prompt_tokens: 16384", "prompt_tokens: 4096"},
                                   {"requests: 600", "requests: 60"},
                                   {"requests: 300", "requests: 60"},
                                   {", score: \">= 95 %\"", ""}}) {
      for (auto at = small.find(from); at != std::string::npos; at = small.find(from))
        small.replace(at, std::string(from).size(), to);
    }
    const std::string config = scratch.write("plan.yaml", small);
    const Output o = kvcast(
        {"plan", config, "--json", "--set", "trace={recipe: needle, layers: 1, steps: 4}", "--set", "score=none"});
    INFO(o.err);
    REQUIRE(o.code == 0);
    const json answers = json::parse(o.out)["answers"];
    CHECK_FALSE(answers.empty());
    for (const json& answer : answers) CHECK_FALSE(answer["text"].get<std::string>().empty());
  }
}

}  // namespace kvcast::tests
