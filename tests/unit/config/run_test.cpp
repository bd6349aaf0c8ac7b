// Runs: reading, the defaults, the ways to name a policy, and every error.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include "config/run.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

const std::string kHead = "model: llama-3.1-8b\nhardware: a100-40gb-pcie4\n";  // lines 1 and 2

Run run_of(const std::string& text) { return read_run(parse_yaml(text, "run.yaml")); }

std::string error_of_run(const std::string& text) {
  return error_of([&] { run_of(text); });
}

PolicyChoice policy_of(const std::string& text) {
  return read_policy(*parse_yaml("policy: " + text, "run.yaml").find("policy"));
}

}  // namespace

TEST_CASE("the example run is read as written", "[run]") {
  const Run run =
      run_of(kHead +
             "name: example\n"
             "description: one of each\n"
             "policy: {name: freekv, budget: 2048, sink: 512, tau: 0.8}\n"
             "workload: {prompt_tokens: 1000, decode_tokens: 20, batch: 4, prefill_chunk: 256, prefill_batch: 2}\n"
             "trace: {recipe: needle, seed: 7, layers: 3, steps: 8}\n"
             "framework: {launch: eager, expand_kv_heads: true, quadratic_mask: true, warmup_steps: 1, "
             "measured_steps: 2, sampled_contexts: 5}\n");
  CHECK(run.name == "example");
  CHECK(run.description == "one of each");
  CHECK(run.model.name == "llama-3.1-8b");
  CHECK(run.hardware.name == "a100-40gb-pcie4");
  CHECK(run.policy.name == "freekv");
  CHECK(run.policy.parameters.canonical() == R"({"budget":2048,"sink":512,"tau":0.8})");
  CHECK(run.policy.where.line == 5);
  CHECK(run.workload.prompt_tokens == 1000);
  CHECK(run.workload.decode_tokens == 20);
  CHECK(run.workload.batch == 4);
  CHECK(run.workload.prefill_chunk == 256);
  CHECK(run.workload.prefill_batch == 2);
  CHECK(run.traces.front().recipe == "needle");
  CHECK(run.traces.front().seed == 7);
  CHECK(run.traces.front().layers == 3);
  CHECK(run.traces.front().steps == 8);
  CHECK(run.traces.front().file.empty());
  CHECK(run.framework.launch == Framework::Launch::kEager);
  CHECK(run.framework.expand_kv_heads);
  CHECK(run.framework.quadratic_mask);
  CHECK(run.framework.warmup_steps == 1);
  CHECK(run.framework.measured_steps == 2);
  CHECK(run.framework.sampled_contexts == 5);
  CHECK(run.source.find("policy") != nullptr);
}

TEST_CASE("a run needs a model, hardware and a policy; the rest has defaults", "[run]") {
  const Run run = run_of(kHead + "policy: full\n");
  CHECK(run.workload.prompt_tokens == 32768);
  CHECK(run.workload.decode_tokens == 512);
  CHECK(run.workload.batch == 1);
  CHECK(run.workload.prefill_chunk == 8192);
  CHECK(run.workload.prefill_batch == 1);
  CHECK(run.traces.front().recipe == "needle");
  CHECK(run.traces.front().seed == 1);
  CHECK(run.traces.front().layers == 2);
  CHECK(run.traces.front().steps == 16);
  CHECK(run.framework.launch == Framework::Launch::kCudaGraph);
  CHECK_FALSE(run.framework.expand_kv_heads);
  CHECK(error_of_run("hardware: a100-40gb-pcie4\npolicy: full") ==
        "run.yaml:1:1: run: the required key \"model\" is missing");
  CHECK_THAT(error_of_run("model: llama-3.1-8b\nhardwares: h100-sxm\npolicy: full"),
             Catch::Contains("run.yaml:2:1: run: unknown key \"hardwares\" (did you mean \"hardware\"?)"));
  CHECK_THAT(error_of_run("model: llama-3.1-8b\nhardware: h100-sxm\npolicy: [full]"),
             Catch::Contains("policy: expected a name, or a map with a name, found a list"));
  CHECK(error_of_run("model: llama-3.1-8b\npolicy: full") ==
        "run.yaml:1:1: run: the required key \"hardware\" is missing");
  CHECK(error_of_run(kHead) == "run.yaml:1:1: run: the required key \"policy\" is missing");
}

TEST_CASE("a run uses several traces unless it names one", "[run]") {
  const Run by_default = run_of(kHead + "policy: full\n");
  REQUIRE(by_default.traces.size() == 3);
  CHECK(by_default.traces[0].recipe == "needle");
  CHECK(by_default.traces[1].recipe == "longbench-single-doc");
  CHECK(by_default.traces[2].recipe == "ruler-multikey2");
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(by_default.traces[i].seed == i + 1);
    CHECK(by_default.traces[i].layers == 2);
    CHECK(by_default.traces[i].steps == 16);
  }
  // Any key of `trace` names one trace, with the other keys' defaults.
  const Run one = run_of(kHead + "policy: full\ntrace: {layers: 1}\n");
  REQUIRE(one.traces.size() == 1);
  CHECK(one.traces[0].recipe == "needle");
  CHECK(one.traces[0].layers == 1);
  CHECK(one.traces[0].steps == 16);
  const Run listed = run_of(kHead + "policy: full\ntraces: [{seed: 4}, {recipe: local, seed: 4}, {file: t}]\n");
  REQUIRE(listed.traces.size() == 3);
  CHECK(listed.traces[0].seed == 4);
  CHECK(listed.traces[1].recipe == "local");
  CHECK(listed.traces[2].file == "t");
}

TEST_CASE("`traces` must be a non-empty list without repetitions, and excludes `trace`", "[run]") {
  CHECK_THAT(error_of_run(kHead + "policy: full\ntraces: []"), Catch::Contains("expected a list of traces"));
  CHECK_THAT(error_of_run(kHead + "policy: full\ntraces: {seed: 1}"), Catch::Contains("expected a list of traces"));
  CHECK_THAT(error_of_run(kHead + "policy: full\ntraces: [{recipe: needle}, {seed: 1, layers: 2}]"),
             Catch::StartsWith("run.yaml:4:28:") && Catch::Contains("the same trace is listed twice"));
  CHECK_THAT(error_of_run(kHead + "policy: full\ntrace: {seed: 1}\ntraces: [{seed: 2}]"),
             Catch::Contains("either `trace:` or `traces:`"));
  CHECK_THAT(error_of_run(kHead + "policy: full\ntraces: [{seed: 1}, {layers: 33}]"),
             Catch::Contains("33 captured layers"));
}

TEST_CASE("a trace comes from a recipe or a file", "[run]") {
  const Run run = run_of(kHead + "policy: full\ntrace: {file: t.safetensors}\n");
  CHECK(run.traces.front().file == "t.safetensors");
  CHECK(run.traces.front().recipe.empty());
  CHECK(error_of_run(kHead + "policy: full\ntrace: {file: t.safetensors, seed: 1}") ==
        "run.yaml:4:36: trace: \"seed\" belongs to a recipe, but `file` is given");
  CHECK(error_of_run(kHead + "policy: full\ntrace: {steps: 4097}") ==
        "run.yaml:4:16: steps: 4097 is out of range, must be between 1 and 4096");
  CHECK(error_of_run(kHead + "policy: full\ntrace: {seed: -1}") ==
        "run.yaml:4:15: seed: -1 is out of range, must be at least 0");
  CHECK(error_of_run(kHead + "policy: full\ntrace: {layers: 33}") ==
        "run.yaml:4:17: trace: 33 captured layers, but Llama-3.1-8B has 32");
  CHECK(error_of_run(kHead + "policy: full\ntrace: needle") ==
        "run.yaml:4:8: trace: expected a map of keys to values, found \"needle\"");
}

TEST_CASE("a context longer than the model's is rejected, one of equal length is not", "[run]") {
  // 130560 + 512 = 131072, all that Llama-3.1-8B attends to.
  const auto with_prompt = [](int tokens) {
    return kHead + "policy: full\nworkload: {prompt_tokens: " + std::to_string(tokens) + ", decode_tokens: 512}\n";
  };
  CHECK(run_of(with_prompt(130560)).workload.prompt_tokens == 130560);
  CHECK(
      error_of_run(with_prompt(130561)) ==
      "run.yaml:4:27: workload: 130561 prompt and 512 decode tokens are 131073, above the 131072 that Llama-3.1-8B can "
      "attend to");
}

TEST_CASE("a prefill pass has the tokens that the framework allows, of one prompt or of several", "[run]") {
  const auto passes = [](const std::string& text) {
    const Run run = run_of(kHead + "policy: full\n" + text);
    return std::pair(run.workload.prefill_chunk, run.workload.prefill_batch);
  };
  using Pass = std::pair<std::int64_t, int>;
  // 8192 tokens: a chunk of a prompt of 32K, or 8 prompts of 1000.
  CHECK(passes("workload: {prompt_tokens: 32K, batch: 4}") == Pass(8192, 1));
  CHECK(passes("workload: {prompt_tokens: 1000, batch: 64}") == Pass(8192, 8));
  CHECK(passes("framework: {prefill_chunk: 2048}\nworkload: {prompt_tokens: 1000}") == Pass(2048, 2));
  // The kHead machine is an A100, whose vLLM server has 2048.
  CHECK(passes("framework: vllm\nworkload: {prompt_tokens: 32K}") == Pass(2048, 1));
  CHECK(passes("framework: vllm-0.5\nworkload: {prompt_tokens: 1000, decode_tokens: 24}") == Pass(0, 2));
  // vLLM 0.6 splits prompts beyond 32K only; below that a pass has the tokens of the longest context.
  CHECK(passes("framework: vllm-0.6\nworkload: {prompt_tokens: 16K}") == Pass(0, 1));
  CHECK(passes("framework: vllm-0.6\nworkload: {prompt_tokens: 64K}") == Pass(512, 1));
  // Transformers reads the whole batch at once, unless asked.
  CHECK(passes("framework: transformers-flash\nworkload: {batch: 4}") == Pass(0, 0));
  CHECK(passes("framework: transformers-flash\nworkload: {batch: 4, prefill: chunked}") == Pass(8192, 1));
  CHECK(passes("workload: {batch: 4, prefill: whole}") == Pass(0, 0));
  CHECK(passes("workload: {batch: 4, prefill: whole, prefill_batch: 2}") == Pass(0, 2));
  // Keys of the run win.
  CHECK(passes("workload: {prompt_tokens: 1000, prefill_chunk: 500}") == Pass(500, 1));
  CHECK(passes("workload: {prompt_tokens: 1000, prefill_chunk: 0}") == Pass(0, 0));
  CHECK(passes("workload: {prompt_tokens: 1000, prefill_batch: 3}") == Pass(8192, 3));
  CHECK(error_of_run(kHead + "policy: full\nworkload: {prefill: whole, prefill_chunk: 512}") ==
        "run.yaml:4:43: workload: `prefill: whole` reads prompts without chunks; give one of the two keys");
  CHECK_THAT(error_of_run(kHead + "policy: full\nworkload: {prefill: some}"), Catch::Contains("known: chunked, whole"));
}

TEST_CASE("invalid workloads and frameworks are rejected", "[run]") {
  const auto section = [](const std::string& text) { return error_of_run(kHead + "policy: full\n" + text); };
  CHECK(section("workload: {batch: 0}") == "run.yaml:4:19: batch: 0 is out of range, must be between 1 and 65536");
  CHECK(section("workload: {prompt_tokens: 32k}") ==
        "run.yaml:4:27: prompt_tokens: expected an integer, found \"32k\" (did you mean \"32K\", which is 32 · 1024?)");
  CHECK(section("workload: {decode_tokens: 0}") ==
        "run.yaml:4:27: decode_tokens: 0 is out of range, must be between 1 and 100000000");
  CHECK(section("workload: {prompt: 5}") ==
        "run.yaml:4:12: workload: unknown key \"prompt\"; known: prompt_tokens, decode_tokens, batch, prefill, "
        "prefill_chunk, prefill_batch");
  CHECK(section("framework: {launch: graph}") ==
        "run.yaml:4:21: launch: unknown value \"graph\"; known: cuda_graph, compiled, eager");
  CHECK(section("framework: {measured_steps: 0}") ==
        "run.yaml:4:29: measured_steps: 0 is out of range, must be between 1 and 4096");
  CHECK(section("framework: {expand_kv_heads: yes}") ==
        "run.yaml:4:30: expand_kv_heads: expected true or false, found \"yes\"");
  CHECK(section("batch: 4") ==
        "run.yaml:4:1: run: unknown key \"batch\" (did you mean \"match\"?); known: name, description, model, "
        "hardware, policy, "
        "match, workload, traffic, scheduler, trace, "
        "traces, score, framework, deployment, speculation, price_per_hour");
}

TEST_CASE("each of the launch modes is read", "[run]") {
  const auto launch = [](const std::string& name) {
    return run_of(kHead + "policy: full\nframework: {launch: " + name + "}").framework.launch;
  };
  CHECK(launch("cuda_graph") == Framework::Launch::kCudaGraph);
  CHECK(launch("compiled") == Framework::Launch::kCompiled);
  CHECK(launch("eager") == Framework::Launch::kEager);
}

TEST_CASE("a sweep is not a run", "[run]") {
  CHECK(error_of_run(kHead + "policy: full\nsweep: {workload.batch: [1, 2]}") ==
        "run.yaml:4:1: a run cannot have `sweep:`; `kvcast sweep` runs its points");
}

TEST_CASE("unknown models and hardware are reported with the known names", "[run]") {
  CHECK_THAT(error_of_run("model: llama-3.1-9b\nhardware: x\npolicy: full"),
             Catch::StartsWith("run.yaml:1:8: nothing named \"llama-3.1-9b\" under configs/models (did you mean "
                               "\"llama-3.1-8b\"?); known: ") &&
                 Catch::Contains("qwen2.5-7b"));
  CHECK_THAT(error_of_run("model: llama-3.1-8b\nhardware: abacus\npolicy: full"),
             Catch::StartsWith("run.yaml:2:11: nothing named \"abacus\" under configs/hardware"));
}

TEST_CASE("a policy is a name, a map or a file", "[run][policy]") {
  CHECK(policy_of("quest").name == "quest");
  CHECK(policy_of("quest").parameters.canonical() == "{}");
  CHECK(policy_of("{name: quest, page: 16}").parameters.canonical() == R"({"page":16})");
  CHECK(policy_of("{name: quest, page: 16}").parameters.find("page")->where().column == 29);

  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/paper.yaml";
  std::ofstream(path) << "name: freekv\ndescription: as in the paper\nsource: Table 1\nbudget: 2048\ntau: 0.8\n";
  for (const std::string& text : {path, "{name: " + path + "}", "{file: " + path + "}"}) {
    const PolicyChoice policy = policy_of(text);
    CHECK(policy.name == "freekv");
    CHECK(policy.parameters.canonical() == R"({"budget":2048,"tau":0.8})");
    CHECK(policy.parameters.find("tau")->where().file == path);
  }
  const PolicyChoice changed = policy_of("{file: " + path + ", tau: 0.9, page: 32}");
  CHECK(changed.parameters.canonical() == R"({"budget":2048,"page":32,"tau":0.9})");
  CHECK(changed.parameters.find("tau")->where().file == "run.yaml");
}

TEST_CASE("a name under configs/policies selects that file, any other name is a built-in policy", "[run][policy]") {
  const TemporaryDirectory directory;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  std::filesystem::create_directories("configs/policies");
  std::ofstream("configs/policies/freekv-paper.yaml") << "name: freekv\nbudget: 2048\n";
  const PolicyChoice named = policy_of("{name: freekv-paper, budget: 64}");
  const PolicyChoice own = policy_of("freekv");
  std::filesystem::current_path(before);
  CHECK(named.name == "freekv");
  CHECK(named.parameters.canonical() == R"({"budget":64})");
  CHECK(own.name == "freekv");
  CHECK(own.parameters.canonical() == "{}");
}

TEST_CASE("settings apply to nested policies", "[run][policy]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/outer.yaml";
  std::ofstream(path) << "name: minference\nslash: 800\nthen: {name: ctkvr, budget: 1024, sink: 4}\nselector: quest\n";
  const auto with = [&](const std::string& more) { return policy_of("{file: " + path + more + "}").parameters; };
  CHECK(with("").find("then")->canonical() == R"({"budget":1024,"name":"ctkvr","sink":4})");
  // A map without a name changes the existing value; a name replaces it.
  CHECK(with(", then: {budget: 64, recent: 8}").find("then")->canonical() ==
        R"({"budget":64,"name":"ctkvr","recent":8,"sink":4})");
  CHECK(with(", then: {name: quest, page: 8}").find("then")->canonical() == R"({"name":"quest","page":8})");
  CHECK(with(", then: full").find("then")->canonical() == "\"full\"");
  CHECK(with(", selector: {page: 8}").find("selector")->canonical() == R"({"name":"quest","page":8})");
  CHECK(with(", slash: 900").find("slash")->text() == "900");
}

TEST_CASE("invalid policies are rejected", "[run][policy]") {
  const auto message = [](const std::string& text) { return error_of([&] { policy_of(text); }); };
  CHECK(message("[quest]") == "run.yaml:1:9: policy: expected a name, or a map with a name, found a list");
  CHECK(message("{budget: 5}") == "run.yaml:1:9: policy: give either name or file");
  CHECK(message("{name: quest, file: x.yaml}") == "run.yaml:1:9: policy: give either name or file");
  CHECK(message("gone/paper.yaml") == "run.yaml:1:9: no such file: gone/paper.yaml");
  CHECK_THAT(message("{file: paper}"),
             Catch::StartsWith("run.yaml:1:16: nothing named \"paper\" under configs/policies"));
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/paper.yaml";
  std::ofstream(path) << "budget: 2048\n";
  CHECK(message(path) == path + ":1:1: policy file: the required key \"name\" is missing");
}

TEST_CASE("settings apply to the run", "[run]") {
  Node config = parse_yaml(kHead + "policy: full\n", "run.yaml");
  for (const char* argument : {"policy=quest", "policy.budget=96", "workload.batch=8", "model=qwen2.5-7b"}) {
    const auto [path, value] = parse_setting(argument);
    config = config.with(path, value);
  }
  const Run run = read_run(config);
  CHECK(run.policy.name == "quest");
  CHECK(run.policy.parameters.canonical() == R"({"budget":96})");
  CHECK(run.workload.batch == 8);
  CHECK(run.model.name == "qwen2.5-7b");
  // An error in a setting is reported with its argument, not with a line of the file.
  const auto [path, value] = parse_setting("workload.batch=0");
  CHECK(error_of([&] { read_run(config.with(path, value)); }) ==
        "--set workload.batch=0: batch: 0 is out of range, must be between 1 and 65536");
}

TEST_CASE("a match replaces the budget by one quantity", "[run][match]") {
  const std::string head = kHead + "policy: {name: quest, page: 8}\n";
  CHECK_FALSE(run_of(head).match);
  const Run tokens = run_of(head + "match: {tokens_attended: 1024}\n");
  REQUIRE(tokens.match);
  CHECK(tokens.match->quantity == MatchChoice::Quantity::kTokensAttended);
  CHECK(tokens.match->value == 1024);
  const Run read = run_of(head + "match: {bytes_read: 40 MB}\n");
  CHECK(read.match->quantity == MatchChoice::Quantity::kBytesRead);
  CHECK(read.match->value == 4e7);
  CHECK(run_of(head + "match: {bytes_resident: 2 GB}\n").match->value == 2e9);
  const Node solved = with_budget(parse_yaml(kHead + "policy: quest\nmatch: {bytes_read: 40 MB}\n", "run.yaml"), 96);
  CHECK(solved.canonical() == parse_yaml(kHead + "policy: {name: quest, budget: 96}\n", "run.yaml").canonical());
}

TEST_CASE("invalid matches are rejected", "[run][match]") {
  const std::string head = kHead + "policy: quest\n";
  CHECK(error_of_run(head + "match: {}\n") ==
        "run.yaml:4:8: match: give one of the quantities; known: bytes_read, bytes_resident, tokens_attended");
  CHECK(error_of_run(head + "match: {bytes_read: 4 MB, tokens_attended: 8}\n") ==
        "run.yaml:4:44: match: bytes_read and tokens_attended: a budget is solved for one of them");
  CHECK(error_of_run(kHead + "policy: {name: quest, budget: 64}\nmatch: {tokens_attended: 8}\n") ==
        "run.yaml:3:31: policy: `match:` solves for the budget; give one of the two");
  CHECK_THAT(error_of_run(head + "match: {tokens: 8}\n"),
             Catch::StartsWith("run.yaml:4:9: match: unknown key \"tokens\""));
  CHECK_THAT(error_of_run(head + "match: {bytes_read: 8}\n"), Catch::Contains("expected bytes with a unit"));
  CHECK_THAT(error_of_run(head + "match: {tokens_attended: 0}\n"), Catch::StartsWith("run.yaml:4:26: "));
}

TEST_CASE("a map of prices applies to every name of its machine, and to the machine with changed numbers", "[run]") {
  const auto price = [](const std::string& hardware, const std::string& prices) {
    return run_of("model: llama-3.1-8b\nhardware: " + hardware + "\npolicy: full\nprice_per_hour: " + prices);
  };
  for (const char* const hardware :
       {"h100-sxm", "H100-SXM", "configs/hardware/h100-sxm.yaml", "{like: h100-sxm, gpu: {hbm_bandwidth: x2}}",
        "{like: {name: h100-sxm, uncertainty: 20 %}}"}) {
    for (const char* const name : {"h100-sxm", "H100-SXM", "configs/hardware/h100-sxm.yaml"}) {
      CAPTURE(hardware, name);
      const Run run = price(hardware, fmt::format("{{l40s: 1, {}: 3}}", name));
      CHECK(run.price_per_hour == 3.0);
      CHECK(unpriced_text(run) == "");
    }
  }
  const Run other = price("h100-sxm", "{l40s: 1}");
  CHECK_FALSE(other.price_per_hour.has_value());
  CHECK(unpriced_text(other) == "price_per_hour has no price of h100-sxm: its results have no cost");
  CHECK_THAT(error_of([&] { price("h100-sxm", "{h100-sxm: 3, H100-SXM: 4}"); }),
             Catch::Contains("run.yaml:4:31: price_per_hour: H100-SXM has another price under another name"));
}

TEST_CASE("a budget may be a share of the prompt", "[run]") {
  const auto budget = [](const std::string& written) {
    const Run run = run_of("model: llama-3.2-1b\nhardware: l40s\npolicy: {name: quest, budget: " + written +
                           "}\nworkload: {prompt_tokens: 10001}\n");
    return run.policy.parameters.find("budget")->text();
  };
  CHECK(budget("20 %") == "2000");
  CHECK(budget("0.001 %") == "1");
  CHECK(budget("100%") == "10001");
  CHECK(budget("512") == "512");
  CHECK_THAT(error_of([&] { budget("120 %"); }), Catch::Contains("run.yaml:3:31: budget: "));
}

}  // namespace kvcast::tests
