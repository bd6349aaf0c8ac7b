// The commands as users see them: their output and their exit codes.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/process.hpp"
#include "app/small_run.hpp"
#include "base/units.hpp"

namespace kvcast::tests {

using Catch::Contains;
using nlohmann::json;

TEST_CASE("help exits with 0 and a wrong command line with 2") {
  CHECK(kvcast({"--help"}).code == 0);
  for (const char* command : {"run", "sweep", "report", "replay", "simulate", "trace", "policies", "metrics", "explain",
                              "validate", "profile", "calibrate"}) {
    const Output o = kvcast({command, "--help"});
    CHECK(o.code == 0);
    CHECK_THAT(o.out, Contains("Usage"));
  }
  CHECK(kvcast({}).code == 2);
  const Output fly = kvcast({"fly"});
  CHECK(fly.code == 2);
  CHECK_THAT(fly.err, Contains("unknown command \"fly\"; known: run, sweep") && Contains("Try: kvcast --help"));
  CHECK_THAT(kvcast({"trace", "fly"}).err,
             Contains("unknown command \"fly\"; known: synth, info, check") && Contains("Try: kvcast trace --help"));
  CHECK(kvcast({"run"}).code == 2);
  CHECK(kvcast({"run", "no-such-file.yaml"}).code == 2);
  CHECK(kvcast({"sweep", "configs/sweeps/quickstart.yaml"}).code == 2);
}

TEST_CASE("an error in a config names file, line, column and the known values", "[minutes]") {
  const Scratch scratch;
  const std::string path = scratch.write("run.yaml", small_run("{name: quest, budgt: 64}"));
  const Output o = kvcast({"run", path});
  CHECK(o.code == 2);
  CHECK_THAT(o.err, Contains(path + ":3:"));
  CHECK_THAT(o.err, Contains("budgt") && Contains("budget"));
  const Output unknown = kvcast({"run", scratch.write("b.yaml", small_run("qest"))});
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, Contains("b.yaml:3:9") && Contains("qest") && Contains("quest"));
}

TEST_CASE("ambiguous and malformed YAML is refused") {
  const Scratch scratch;
  for (const char* text :
       {"model: &a {x: *a}\n", "model: a\n---\nmodel: b\n", "model: a\nmodel: b\n", "[1, 2", "", "42\n",
        "policy: !!python/object {}\n", "\xff\xfe\n", "a: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}) {
    const Output o = kvcast({"run", scratch.write("bad.yaml", text)});
    INFO(text << o.err);
    CHECK(o.code == 2);
    CHECK_THAT(o.err, Contains("bad.yaml"));
  }
}

TEST_CASE("a batch has prompts of the lengths that a list states, and explain shows one length") {
  const Scratch scratch;
  const std::string path = scratch.write("run.yaml", small_run("{name: snapkv, budget: 256}"));
  const std::string lengths = "workload.prompt_tokens=[512, 1024, 1024]";
  const Output run = kvcast({"run", path, "--set", lengths, "--set", "workload.batch=3"});
  REQUIRE(run.code == 0);
  CHECK_THAT(run.out, Contains("[512, 1024, 1024] prompt tokens") && Contains("batch 3"));
  const Output explained = kvcast({"explain", path, "--set", lengths});
  CHECK(explained.code == 2);
  CHECK_THAT(explained.err, Contains("give one prompt length"));
}

TEST_CASE("a run reports time, memory, accuracy and the origin of each number") {
  const json r = run_json("{name: snapkv, budget: 256}");
  CHECK(r["oom"].is_null());
  const double tpot = r["decode"]["tpot_s"]["mean"];
  CHECK(r["decode"]["tokens_per_s"].get<double>() == Approx(2 / tpot));
  double charged = 0, on_path = 0;
  for (const json& part : r["breakdown"]) {
    charged += part["exposed_s"].get<double>(), on_path += part["critical_s"].get<double>();
  }
  CHECK(charged == Approx(tpot).epsilon(1e-9));
  CHECK(on_path == Approx(tpot).epsilon(1e-3));  // without gaps that nothing explains
  const auto interval = r["intervals"]["decode.tokens_per_s"];
  CHECK(interval[0] < r["decode"]["tokens_per_s"]);
  CHECK(interval[1] > r["decode"]["tokens_per_s"]);
  // Errors of costs are independent: the logarithms of their effects on a step add as squares.
  double below = 0, above = 0;
  for (const json& s : r["sensitivities"]) {
    CHECK_FALSE(s["keys"].empty());
    const double shorter = s["decode.tpot_s"][0], longer = s["decode.tpot_s"][1];
    below += std::pow(std::log(shorter), 2), above += std::pow(std::log(longer), 2);
  }
  CHECK(r["intervals"]["decode.tpot_s.mean"][0].get<double>() == Approx(tpot * std::exp(-std::sqrt(below))));
  CHECK(r["intervals"]["decode.tpot_s.mean"][1].get<double>() == Approx(tpot * std::exp(std::sqrt(above))));
  for (const char* key : {"decode.tokens_per_s", "decode.tpot_s", "prefill.ttft_s", "memory", "traffic", "accuracy"}) {
    CHECK(r["origin"].contains(key));
  }
  // Weights of Llama-3.2-1B are read once a step: 1 235 814 400 parameters of 2 bytes, the embedding's rows aside.
  CHECK(r["traffic"]["hbm_read_bytes"].get<double>() > 2.47e9);
  double owned = 0;
  for (const json& o : r["memory"]["hbm_owners"]) owned += o["bytes"].get<double>();
  CHECK(owned == Approx(r["memory"]["hbm_peak_bytes"].get<double>()));
  CHECK(r["engine"]["events"].get<std::int64_t>() > 0);
}

TEST_CASE("differences between the layers of a trace widen a run's interval") {
  // Recalled pages differ from layer to layer; a policy that drops the prompt reads the same in all of them.
  const auto of_trace = [](const char* policy) -> json {
    const json r = run_json(policy, {"workload.prompt_tokens=2048"});
    for (const json& s : r["sensitivities"]) {
      if (s["keys"] == json::array({"trace"})) return s["decode.tpot_s"];
    }
    return nullptr;
  };
  const json recalled = of_trace("{file: arkvale-released, budget: 192, topk: 6, selection_heads: kv_head}");
  REQUIRE(recalled.is_array());
  CHECK(recalled[1] > 1.02);
  CHECK(recalled[0].get<double>() * recalled[1].get<double>() == Approx(1));
  CHECK(of_trace("{name: snapkv, budget: 256}").is_null());
}

TEST_CASE("with a budget that covers all tokens a policy is as accurate as full KV", "[minutes]") {
  const json full = run_json("full")["accuracy"];
  CHECK(full["recall_mass_mean"].get<double>() == Approx(1));
  for (const char* policy :
       {"exact_topk", "streaming_llm", "snapkv", "quest", "hsa", "rocketkv", "rocketkv_mt", "arkvale", "freekv"}) {
    INFO(policy);
    const json a = run_json("{name: " + std::string(policy) + ", budget: 4096}")["accuracy"];
    CHECK(a["recall_mass_mean"].get<double>() == Approx(1).epsilon(1e-6));
    CHECK(a["output_error_mean"].get<double>() == Approx(0).margin(1e-5));
    CHECK(a["attended_mean"] == full["attended_mean"]);
  }
}

TEST_CASE("a few sampled contexts come within 1 % of every generated token simulated", "[minutes]") {
  for (const char* policy : {"full", "{name: quest, budget: 256}", "{name: snapkv, budget: 256}",
                             "{name: freekv, budget: 256}", "{name: arkvale, budget: 256}"}) {
    INFO(policy);
    const std::vector<std::string> sampled = {"workload.decode_tokens=240", "framework.measured_steps=10"};
    // One window that spans all 240 tokens, with nothing dropped.
    const std::vector<std::string> exact = {"workload.decode_tokens=240", "framework.measured_steps=240",
                                            "framework.warmup_steps=0", "framework.sampled_contexts=1"};
    const double approximate = run_json(policy, sampled)["decode"]["tpot_s"]["mean"];
    CHECK(approximate == Approx(run_json(policy, exact)["decode"]["tpot_s"]["mean"].get<double>()).epsilon(0.01));
  }
}

TEST_CASE("every key has an effect", "[minutes]") {
  const json base = run_json("{name: quest, budget: 256}");
  const auto numbers = [](json r) {
    r.erase("config");
    r["engine"].erase("wall_s");
    return r;
  };
  for (const char* setting : {"model=llama-3.2-3b",
                              "hardware=h100-sxm",
                              "policy=snapkv",
                              "policy.budget=128",
                              "workload.prompt_tokens=900",
                              "workload.decode_tokens=30",
                              "workload.batch=3",
                              "workload.prefill_chunk=256",
                              "workload.prefill_batch=1",
                              "trace.recipe=mixed",
                              "trace.seed=4",
                              "trace.layers=3",
                              "trace.steps=6",
                              "framework.launch=eager",
                              "framework.launch=compiled",
                              "framework.expand_kv_heads=true",
                              "framework.reread_kv_heads=true",
                              "framework.eager_attention=true",
                              "framework.concatenate_cache=true",
                              "framework.quadratic_mask=true",
                              "framework.warmup_steps=0",
                              "framework.measured_steps=3",
                              "framework.sampled_contexts=2"}) {
    INFO(setting);
    CHECK(numbers(run_json("{name: quest, budget: 256}", {setting})) != numbers(base));
  }
}

TEST_CASE("at batch 4 and 32K with a one-shot prefill, full KV does not fit in 40 GB and FreeKV does", "[minutes]") {
  const Output full = kvcast(
      {"run", "configs/runs/quickstart.yaml", "--set", "policy=full", "--set", "workload.prefill=whole", "--json"});
  REQUIRE(full.code == 0);
  const json oom = json::parse(full.out)["oom"];
  CHECK(oom["pool"] == "hbm");
  CHECK_THAT(oom["moment"].get<std::string>(), Contains("prefill"));
  CHECK(oom["owners"].size() >= 3);
  CHECK(oom["requested_for"] == "KV cache");
  CHECK(oom["in_use_bytes"].get<double>() + oom["requested_bytes"].get<double>() > oom["capacity_bytes"].get<double>());
  const Output freekv = kvcast({"run", "configs/runs/quickstart.yaml", "--set", "workload.prefill=whole", "--json"});
  REQUIRE(freekv.code == 0);
  CHECK(json::parse(freekv.out)["oom"].is_null());
}

TEST_CASE("help is a command as well as an option") {
  CHECK(kvcast({"help"}).out == kvcast({"--help"}).out);
  const Output o = kvcast({"help", "trace", "synth"});
  CHECK(o.code == 0);
  CHECK_THAT(o.out, Contains("Usage: kvcast trace synth"));
}

TEST_CASE("the run and explain commands in the README and the guide work as written", "[minutes]") {
  const Scratch scratch;
  const std::string source = KVCAST_SOURCE_DIR;
  std::istringstream lines(slurp(source + "/README.md") + slurp(source + "/docs/guide.md"));
  int found = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word == "step.json" ? scratch / word : word);
    if (arguments.size() < 2 || arguments[0] != "build/kvcast") continue;
    if (arguments[1] != "run" && arguments[1] != "explain" && arguments[1] != "policies") continue;
    INFO(line);
    const Output o = kvcast({arguments.begin() + 1, arguments.end()});
    CHECK_THAT(o.err, !Contains("kvcast: "));  // progress messages are allowed
    CHECK(o.code == 0);
    ++found;
  }
  CHECK(found >= 5);
}

TEST_CASE("full attention keeps its task score exactly, and rounded caches have none", "[minutes]") {
  const json full = run_json("full");
  CHECK(full["accuracy"]["task"]["share_of_full"] == 1);
  CHECK(full["accuracy"]["task"]["interval"] == json({1, 1}));
  CHECK(full["origin"]["accuracy.task"] == "exact");
  CHECK(run_json("{name: quest, budget: 256}")["origin"]["accuracy.task"] == "fitted");
  CHECK(run_json("{name: kivi, residual: 32}")["accuracy"]["task"].is_null());
  CHECK(run_json("{name: compresskv, budget: 256, quantisation: kivi}")["accuracy"]["task"].is_null());
  CHECK_FALSE(run_json("{name: compresskv, budget: 256}")["accuracy"]["task"].is_null());
  CHECK(run_json("full", {"deployment.kv_cache=int4"})["accuracy"]["task"].is_null());
}

TEST_CASE("a run prints every number with its unit, interval and origin") {
  const Scratch scratch;
  const std::string config = scratch.write("run.yaml", small_run("full"));
  const json r = run_json("full");
  const std::string out = kvcast({"run", config}).out;
  const auto us = [](const json& seconds) {
    return kvcast::format_quantity(seconds.get<double>(), kvcast::Dimension::kSeconds);
  };
  const json& tpot = r["intervals"]["decode.tpot_s.mean"];
  const std::size_t at = out.find("Time per output token, mean");
  REQUIRE(at != std::string::npos);
  const std::string line = out.substr(at, out.find('\n', at) - at);
  CHECK_THAT(line, Contains(us(r["decode"]["tpot_s"]["mean"])) && Contains(us(tpot[0]) + " to " + us(tpot[1])) &&
                       Contains(r["origin"]["decode.tpot_s.mean"].get<std::string>()));
  CHECK_THAT(out, Contains("Time to first token") && Contains("Attention mass kept, mean") && Contains("HBM peak") &&
                      Contains("Bottleneck on the critical path: " + r["bottleneck"].get<std::string>()));
  CHECK(r["origin_shares"]["prefill"]["literature"].get<double>() > 0.01);
}

TEST_CASE("a run reports when a budget is filled only after the replayed steps", "[minutes]") {
  // 512 tokens are reached after 256 of 768 generated ones; full attention has no budget.
  const std::vector<std::string> longer = {"workload.prompt_tokens=256", "workload.decode_tokens=768"};
  CHECK(run_json("{name: tova, budget: 512}", longer)["origin"]["accuracy"] == "extrapolated");
  CHECK(run_json("full", longer)["origin"]["accuracy"] == "assumed");
  const Scratch scratch;
  const std::string config = scratch.write("run.yaml", small_run("{name: tova, budget: 512}"));
  CHECK_THAT(kvcast({"run", config, "--set", longer[0], "--set", longer[1]}).out,
             Contains("before the policy's budget is full, at 512 tokens"));
}

TEST_CASE("KV of Llama-3.1-70B at batch 32 and 32K takes 320 GiB", "[minutes]") {
  // 80 layers · 8 KV heads · 128 · 2 (K and V) · 2 bytes · 32768 tokens · 32 sequences
  CHECK(80.0 * 8 * 128 * 2 * 2 * 32768 * 32 == 320.0 * (1ull << 30));
  const Scratch scratch;
  const Output o =
      kvcast({"run",
              scratch.write("70b.yaml",
                            "model: llama-3.1-70b\nhardware: b200\npolicy: full\n"
                            "workload: {prompt_tokens: 32768, decode_tokens: 1, batch: 32, prefill_chunk: 512}\n"
                            "trace: {recipe: needle, layers: 1, steps: 1}\n"),
              "--json"});
  REQUIRE(o.code == 0);
  const json r = json::parse(o.out);
  REQUIRE(!r["oom"].is_null());  // far beyond one GPU
}

TEST_CASE("simulate computes the makespan of the graph in the interface description") {
  const Scratch scratch;
  const std::string graph = scratch.write(
      "g.json",
      R"({"resources":[{"name":"hbm","rate":3.35e12,"sharing":"fair"},{"name":"h2d","rate":2.5e10,"sharing":"fifo"}],
          "lanes":["compute","copy"],
          "ops":[{"id":0,"lane":"compute","latency_s":2e-6,"demand":{"hbm":1e9},"after":[]}]})");
  const Output o = kvcast({"simulate", graph});
  REQUIRE(o.code == 0);
  // 2 us and 1e9 bytes at 3.35 TB/s
  CHECK(json::parse(o.out)["makespan_s"].get<double>() ==
        Approx(2e-6 + 1e9 / 3.35e12).epsilon(1e-8));  // whole picoseconds
  CHECK(kvcast({"simulate", scratch.write("bad.json", "{\"resources\": [}")}).code == 2);
}

TEST_CASE("a written trace can be replayed, and its selections are ordered by layer, step and head", "[minutes]") {
  const Scratch scratch;
  const std::string trace = scratch / "t.safetensors";
  REQUIRE(kvcast({"trace", "synth", "needle", "-o", trace, "--set", "model=llama-3.2-1b", "--set", "prompt_tokens=500",
                  "--set", "decode_steps=3"})
              .code == 0);
  CHECK(kvcast({"trace", "info", trace}).code == 0);
  CHECK(kvcast({"trace", "check", trace}).code == 0);
  const std::string selections = scratch / "s.jsonl";
  const Output o = kvcast({"replay", "--trace", trace, "--policy", "quest", "--set", "budget=64", "--set", "page=16",
                           "--selections", selections, "--json"});
  INFO(o.err);
  REQUIRE(o.code == 0);
  const json r = json::parse(o.out);
  CHECK(r["recall_mass_mean"].get<double>() > 0);
  CHECK(r["attended_mean"].get<double>() <= 64);
  std::istringstream lines(slurp(selections));
  std::vector<std::array<int, 3>> order;
  for (std::string line; std::getline(lines, line);) {
    const json j = json::parse(line);
    order.push_back({j["layer"], j["step"], j["kv_head"]});
    if (j["step"] >= 0) CHECK(j["attended"].back().get<int>() <= 500 + j["step"].get<int>());
  }
  CHECK(order.size() == 2u * (3 + 1) * 8);  // layers, steps and the tokens resident before them, KV heads
  CHECK(std::is_sorted(order.begin(), order.end()));

  // The record costs what Quest costs if its index is stated, apart from the updates of page summaries: minimum and
  // maximum of 64 dimensions at 16 bits take 16 bytes per token in pages of 16.
  const auto step_of = [&](const std::string& policy) {
    const std::string config = scratch.write(
        "run.yaml",
        "model: llama-3.2-1b\nhardware: h100-sxm\nworkload: {prompt_tokens: 500, decode_tokens: 3, batch: 64}\n"
        "trace: {file: " +
            trace + "}\npolicy: {" + policy + "}\n");
    const Output run = kvcast({"run", config, "--json"});
    INFO(run.err);
    REQUIRE(run.code == 0);
    return json::parse(run.out)["decode"]["tpot_s"]["mean"].get<double>();
  };
  const double quest = step_of("name: quest, budget: 64, page: 16");
  const double record = step_of("name: replayed, selections: " + selections + ", index_bytes: 16, index_tokens: 16");
  const double without = step_of("name: replayed, selections: " + selections);
  CHECK(without < 0.95 * quest);
  CHECK(record < quest);
  CHECK(record > 0.97 * quest);
}

TEST_CASE("a profile measured on a trace serves the policies that need one") {
  const Scratch scratch;
  const std::string trace = scratch / "t.safetensors", profile = scratch / "p.yaml";
  REQUIRE(kvcast({"trace", "synth", "needle", "-o", trace, "--set", "model=llama-3.2-1b", "--set", "prompt_tokens=600",
                  "--set", "decode_steps=8"})
              .code == 0);
  const Output made = kvcast({"profile", "--trace", trace, "-o", profile});
  INFO(made.err);
  REQUIRE(made.code == 0);
  for (const char* policy : {"compresskv", "headkv", "duo_attention", "razor_attention"}) {
    INFO(policy);
    CHECK(kvcast({"replay", "--trace", trace, "--policy", policy}).code == 2);
    const Output o = kvcast({"replay", "--trace", trace, "--policy", policy, "--set", "profile=" + profile, "--json"});
    INFO(o.err);
    REQUIRE(o.code == 0);
    const double kept = json::parse(o.out)["recall_mass_mean"];
    CHECK(kept > 0);
    CHECK(kept <= 1 + 1e-6);
  }
}

TEST_CASE("explain lists the operations of a layer in a step", "[minutes]") {
  const Scratch scratch;
  const Output o = kvcast(
      {"explain", scratch.write("run.yaml", small_run("{name: quest, budget: 128}")), "--step", "3", "--layer", "5"});
  INFO(o.err);
  REQUIRE(o.code == 0);
  CHECK_THAT(o.out, Contains("attends to") && Contains("attention") && Contains("layer 5"));
  CHECK(kvcast({"explain", scratch / "run.yaml", "--step", "99"}).code == 2);
  CHECK(kvcast({"explain", scratch / "run.yaml", "--layer", "99"}).code == 2);
}

}  // namespace kvcast::tests
