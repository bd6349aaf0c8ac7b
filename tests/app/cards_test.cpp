// Models from their cards, the machine that kvcast runs on, and one's own measured steps, from the command line.
#include <fmt/format.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/process.hpp"
#include "app/record_of.hpp"

namespace kvcast::tests {

using Catch::Contains;
using nlohmann::json;

namespace {

// Qwen3-0.6B as published, with a key that kvcast does not know.
constexpr const char* kCard = R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024,
"head_dim": 128, "intermediate_size": 3072, "max_position_embeddings": 40960, "num_attention_heads": 16,
"num_hidden_layers": 28, "num_key_value_heads": 8, "rope_theta": 1000000, "tie_word_embeddings": true,
"vocab_size": 151936, "attention_sink_size": 4})";

Output on_path(const std::vector<std::string>& arguments, const std::string& folder) {
  return kvcast(arguments, [&] { setenv("PATH", folder.c_str(), 1); });
}

// A stand-in for nvidia-smi that prints these lines for GPUs.
Output here_with(const std::string& lines) {
  const Scratch scratch;
  const std::string program = scratch.write("nvidia-smi", "#!/bin/sh\n/bin/cat <<'END'\n" + lines + "END\n");
  chmod(program.c_str(), 0755);
  return on_path({"hardware", "--here"}, std::filesystem::path(program).parent_path().string());
}

std::string line_with(const std::string& text, const std::string& start) {
  const std::size_t at = text.find(start);
  REQUIRE(at != std::string::npos);
  return text.substr(at, text.find('\n', at) - at);
}

}  // namespace

TEST_CASE("models import writes the model of a config.json, which a run reads as well") {
  const Scratch scratch;
  const std::string card = scratch.write("config.json", kCard), out = scratch / "mine.yaml";
  const Output imported = kvcast({"models", "import", card, "-o", out});
  INFO(imported.err);
  REQUIRE(imported.code == 0);
  CHECK_THAT(imported.err, Contains("unknown key \"attention_sink_size\" (4) is not read"));
  const auto shape = [](const std::string& model) {
    const Output o = kvcast({"models", model, "--json"});
    INFO(o.err);
    REQUIRE(o.code == 0);
    json j = json::parse(o.out);
    for (const char* key : {"name", "title", "aliases", "source"}) j.erase(key);
    return j;
  };
  CHECK(shape(out) == shape("qwen3-0.6b"));
  CHECK(shape(card) == shape(out));
  CHECK_THAT(kvcast({"models", "import", card}).out, Contains("# 0.60 billion parameters"));
  CHECK(kvcast({"models", "import", card, "-o", "-"}).out == kvcast({"models", "import", card}).out);
  const Output again = kvcast({"models", "import", card, "-o", out});
  CHECK(again.code == 2);
  CHECK_THAT(again.err, Contains("mine.yaml exists; name another file"));
  const std::string rest =
      "\nhardware: l4\npolicy: full\nworkload: {prompt_tokens: 500, decode_tokens: 20}\n"
      "trace: {recipe: needle, layers: 1, steps: 2}\n";
  const json from_card = record_of("model: {config: " + card + "}" + rest, {});
  const json from_file = record_of("model: " + out + rest, {});
  CHECK(from_card["decode"]["tpot_s"]["mean"] == from_file["decode"]["tpot_s"]["mean"]);
  const Output none = kvcast({"models", "import", scratch.write("x.json", "{\"model_type\": \"lama\"}")});
  CHECK(none.code == 2);
  CHECK_THAT(none.err, Contains("unknown architecture \"lama\""));
}

TEST_CASE("hardware --here reads the GPUs that nvidia-smi lists") {
  const Output two = here_with("NVIDIA A100-SXM4-80GB, 81920, 3, 8\nNVIDIA A100-SXM4-80GB, 81920, 3, 8\n");
  INFO(two.err);
  REQUIRE(two.code == 0);
  CHECK_THAT(two.out, Contains("2 of NVIDIA A100-SXM4-80GB"));
  const std::string machine = line_with(two.out, "hardware: {like: a100-80gb-sxm");
  CHECK_THAT(machine, Contains("pcie: {generation: 3, lanes: 8}") && Contains("cores: "));
  const json run = record_of(
      "model: llama-3.2-1b\npolicy: full\nworkload: {prompt_tokens: 500, decode_tokens: 20}\n"
      "trace: {recipe: needle, layers: 1, steps: 2}\n" +
          machine + "\n",
      {});
  const auto used = run["config"]["hardware"].get<std::string>();
  CHECK(used.starts_with("a100-80gb-sxm ("));
  CHECK_THAT(used, Contains("link.pcie 3.0 x8"));
  CHECK_THAT(here_with("NVIDIA L40, 46068, 4, 16\n").out, Contains("like: l40s, gpu: {tensor_flops: 181 TFLOP/s}"));
  const Output unknown = here_with("NVIDIA Quadro Z9, 46068, 4, 16\n");
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, Contains("Z9"));
  CHECK_THAT(here_with("").err, Contains("lists no GPU"));
  const Scratch empty;
  const Output no_driver = on_path({"hardware", "--here"}, empty / "");
  CHECK(no_driver.code == 2);
  CHECK_THAT(no_driver.err, Contains("nvidia-smi"));
}

TEST_CASE("calibrate steps finds the machine that rows were made with", "[minutes]") {
  const Scratch scratch;
  const std::string base =
      "model: llama-3.2-1b\nhardware: l4\npolicy: full\nframework: vllm\n"
      "trace: {recipe: needle, layers: 1, steps: 2}\n";
  std::string csv = "batch,context,tpot_ms,ttft_ms,output_tokens\n";
  for (const auto& [batch, context] : {std::pair{1, 500}, {1, 8000}, {4, 4000}, {8, 2000}, {8, 16000}, {2, 16000}}) {
    const json measured =
        record_of(base + fmt::format("workload: {{prompt_tokens: {}, decode_tokens: 32, batch: {}}}\n", context, batch),
                  {"hardware.gpu.hbm_bandwidth=x0.8", "hardware.gpu.tensor_flops=x0.7"});
    csv += fmt::format("{},{},{},{},32\n", batch, context, measured["decode"]["tpot_s"]["mean"].get<double>() * 1e3,
                       measured["prefill"]["ttft_s"].get<double>() * 1e3);
  }
  const std::string rows = scratch.write("mine.csv", csv), run = scratch.write("run.yaml", base),
                    out = scratch / "fitted.yaml";
  const Output fitted = kvcast({"calibrate", "steps", rows, "--run", run, "-o", out});
  INFO(fitted.out << fitted.err);
  REQUIRE(fitted.code == 0);
  const double memory = std::stod(line_with(fitted.out, "rate of memory").substr(20));
  const double products = std::stod(line_with(fitted.out, "rate of products").substr(20));
  CHECK(memory == Approx(0.8).epsilon(0.03));
  CHECK(products == Approx(0.7).epsilon(0.05));
  const json before = record_of(base + "workload: {prompt_tokens: 8000, decode_tokens: 32}\n", {});
  const json after = record_of(slurp(out) + "workload: {prompt_tokens: 8000, decode_tokens: 32}\n", {});
  const auto width = [](const json& r) {
    const json& interval = r["intervals"]["decode.tpot_s.mean"];
    return interval[1].get<double>() / interval[0].get<double>();
  };
  CHECK(width(after) < width(before));
  CHECK_THAT(slurp(out), Contains("origin: fitted") && Contains("left_out: "));
  // A row that the model contradicts without order.
  const std::string noise = scratch.write("noise.csv", "batch,context,tpot_ms\n1,500,1\n1,600,90\n1,700,1\n1,800,90\n");
  const Output refused = kvcast({"calibrate", "steps", noise, "--run", run, "-o", scratch / "no.yaml"});
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err, Contains("nothing is written"));
  CHECK_FALSE(std::filesystem::exists(scratch / "no.yaml"));
}

TEST_CASE("a run of a model with recurrences says on which layers the policy acts") {
  const Scratch scratch;
  const std::string run =
      scratch.write("run.yaml",
                    "model: qwen3.5-27b\nhardware: h200\nframework: vllm\npolicy: {name: quest, budget: 256}\n"
                    "workload: {prompt_tokens: 1024, decode_tokens: 8, batch: 2}\ntrace: {recipe: needle, steps: 2}\n");
  const Output o = kvcast({"run", run});
  INFO(o.err);
  REQUIRE(o.code == 0);
  CHECK_THAT(o.out, Contains("acts on the 16 layers that attend; 48 others have a recurrence and keep 154 MB"));
  CHECK_THAT(o.out, Contains("recurrent states") && Contains("308 MB"));
  const Output refused = kvcast({"run", run, "--set", "framework=vllm-0.8"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains("has layers with a recurrence, which vllm-0.8 does not run: name one that does"));
}

}  // namespace kvcast::tests
