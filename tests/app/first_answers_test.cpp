// The first answers that a user gets: the head of a run, the setting that would fit, suggestions, a file to begin with.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "app/process.hpp"
#include "app/small_run.hpp"

namespace kvcast::tests {

using Catch::Contains;
using Catch::StartsWith;
using nlohmann::json;

TEST_CASE("an out-of-memory result names the failed request and the nearest setting that fits", "[minutes]") {
  const auto text = [](const std::vector<std::string>& settings) {
    // Whether a setting fits does not depend on the trace, so that a small one is enough.
    std::vector<std::string> arguments = {"run",   "configs/runs/quickstart.yaml",
                                          "--set", "policy=full",
                                          "--set", "trace={recipe: needle, layers: 1, steps: 4}",
                                          "--set", "score=none"};
    for (const std::string& s : settings) arguments.insert(arguments.end(), {"--set", s});
    return kvcast(arguments).out;
  };
  const std::string whole = text({"workload.prompt_tokens=65536", "workload.batch=8", "workload.prefill=whole"});
  CHECK_THAT(whole, Contains("Does not fit: in prefill") &&
                        Contains("are in use; another 62.3 GB for activations would exceed the capacity by 36.8 GB"));
  // In 41.5 GB, a sequence takes 8.6 GB of cache and 7.8 GB of activations in addition to 16.1 GB of weights.
  CHECK_THAT(whole,
             Contains("The nearest setting that fits has workload.batch 1 (peak of 32.") && Contains("of 41.5 GB)."));
  // The bytes occur once: those in use, not a peak that was never reached.
  CHECK(whole.find("weights  ") == whole.rfind("weights  "));
  // Read in passes of 8192 tokens, one prompt has 1 GB of activations: two fit.
  CHECK_THAT(text({"workload.prompt_tokens=65536", "workload.batch=8"}),
             Contains("fits has workload.batch 2 (peak of 3"));
  // 16.1 + 17.2 GB of cache do not fit in 24 GB, 8 bits of it do.
  CHECK_THAT(text({"hardware=rtx-3090", "workload.prompt_tokens=60000", "workload.batch=1"}),
             Contains("The nearest setting that fits has deployment.kv_cache fp8 (peak of "));
  CHECK_THAT(text({"model=llama-3.1-70b"}),
             Contains("another 141 GB for weights would exceed the capacity by 99.6 GB") &&
                 Contains("No smaller batch, smaller chunk, precision of 8 bits, second GPU or evicting policy fits."));
}

TEST_CASE("a run opens with what a request gets, what limits it and how sure that is") {
  const Scratch scratch;
  const std::string config = scratch.write("run.yaml", small_run("full"));
  const Output o = kvcast({"run", config, "--set", "price_per_hour=2"});
  const json numbers = json::parse(kvcast({"run", config, "--json"}).out);
  const std::size_t serves = o.out.find("\nServes     "), table = o.out.find("Latency of a request");
  REQUIRE(serves != std::string::npos);
  CHECK(serves < table);
  CHECK_THAT(o.out,
             Contains(fmt::format("Serves     {:.3g} requests/s of 1000 + 40 tokens, 2 at a time: first token after ",
                                  numbers["request"]["requests_per_s"].get<double>())) &&
                 Contains("per million output tokens, prompts included.\nLimits     prompts take ") &&
                 Contains(" with 80 % probability ("));
  // Two prompts, and the steps of one request: 2 / (prefill + 39 steps).
  const double latency =
      numbers["prefill"]["ttft_s"].get<double>() + 39 * numbers["decode"]["tpot_s"]["mean"].get<double>();
  CHECK(numbers["request"]["latency_s"].get<double>() == Approx(latency));
  CHECK(numbers["request"]["requests_per_s"].get<double>() == Approx(2 / latency));
  CHECK(numbers["fit"] == "fits");
}

TEST_CASE("a run is read from standard input, policies are found whatever their spelling") {
  const Scratch scratch;
  const std::string config = scratch.write("run.yaml", small_run("StreamingLLM"));
  const Output piped = kvcast({"run", "-", "--json"}, [&] {
    if (std::freopen(config.c_str(), "r", stdin) == nullptr) _exit(125);
  });
  REQUIRE(piped.code == 0);
  const json numbers = json::parse(piped.out);
  CHECK(numbers["config"]["policy"]["name"] == "streaming_llm");
  CHECK(numbers["decode"]["tokens_per_s"] == run_json("streaming_llm")["decode"]["tokens_per_s"]);
  const Output broken = kvcast({"run", "-"}, [&] {
    if (std::freopen(scratch.write("b.yaml", small_run("H2OO")).c_str(), "r", stdin) == nullptr) _exit(125);
  });
  CHECK(broken.code == 2);
  CHECK_THAT(broken.err, Contains("standard input:3:9: unknown policy \"H2OO\" (did you mean \"h2o\"?)"));
}

TEST_CASE("misspelt commands and options get a suggestion") {
  CHECK_THAT(kvcast({"swep"}).err, Contains("unknown command \"swep\" (did you mean \"sweep\"?)"));
  const Output option = kvcast({"run", "configs/runs/quickstart.yaml", "--jsn"});
  CHECK(option.code == 2);
  CHECK_THAT(option.err, Contains("unknown option \"--jsn\" (did you mean \"--json\"?)"));
}

TEST_CASE("init writes a configuration that its next command accepts, for every question") {
  const Scratch scratch;
  for (const char* question : {"run", "policy", "service", "hardware", "batch", "when", "sweep"}) {
    INFO(question);
    const std::string file = scratch / (std::string(question) + ".yaml");
    const Output o = kvcast(
        {"init", "--model", "qwen3-8b", "--hardware", "l40s", "--policy", "Quest", "--question", question, "-o", file});
    REQUIRE(o.code == 0);
    CHECK_THAT(o.out, Contains(file + " is written. Next: kvcast "));
    CHECK_THAT(slurp(file),
               Contains("model: qwen3-8b") && Contains("hardware: l40s") && Contains("{name: quest, budget: 2048}"));
    CHECK_THAT(kvcast({"init", "--question", question, "-o", file}).err, Contains("exists; name another file"));
  }
  CHECK(kvcast({"init", "-o", "-"}).out.starts_with("# how fast is this setting"));
  CHECK_THAT(kvcast({"init", "--question", "polcy", "-o", "-"}).err, Contains("did you mean \"policy\"?"));
  const Output unknown = kvcast({"init", "--model", "llama-3.1-8c", "-o", "-"});
  CHECK_THAT(unknown.err, StartsWith("kvcast: --model: ") && Contains("llama-3.1-8b"));
}

}  // namespace kvcast::tests
