// Models: shapes against the published sizes of the checkpoints, and the rejection of inconsistent shapes.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "config/run.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace config;
namespace fs = std::filesystem;

namespace {

// A small model, one key a line: `layers` in line 2 and so on.
const std::map<int, std::string> kLines = {
    {1, "title: Tiny"},       {2, "layers: 2"},           {3, "hidden: 8"},      {4, "n_q_heads: 4"},
    {5, "n_kv_heads: 2"},     {6, "head_dim: 6"},         {7, "ffn: 10"},        {8, "vocab: 20"},
    {9, "max_context: 4096"}, {10, "rope: {theta: 1e4}"}, {11, "source: a test"}};

Model tiny(std::map<int, std::string> changed = {}) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/tiny.yaml";
  changed.insert(kLines.begin(), kLines.end());  // given values stay
  std::ofstream file(path);
  for (const auto& [line, text] : changed) file << text << "\n";
  file.close();
  return read_model(path);
}

// The message for a changed line, from the file's name on.
std::string error_with(const std::map<int, std::string>& changed) {
  const std::string message = error_of([&] { tiny(changed); });
  const std::size_t name = message.find("tiny.yaml");
  return name == std::string::npos ? message : message.substr(name);
}

}  // namespace

TEST_CASE("the parameter count is exact", "[model]") {
  // Per layer: q 8·24, k and v 2 · 8·12, o 24·8, feed-forward 3 · 8·10, norms 2 · 8: 192 + 192 + 192 + 240 + 16 = 832.
  // Embedding and head 2 · 20·8 = 320, final norm 8: 2 · 832 + 328 = 1992.
  CHECK(tiny().parameters() == 1992);
  CHECK(tiny({{12, "tie_embeddings: true"}}).parameters() == 1992 - 160);
  CHECK(tiny({{12, "qkv_bias: true"}}).parameters() == 1992 + 2 * (24 + 12 + 12));
  CHECK(tiny({{12, "qk_norm: true"}}).parameters() == 1992 + 2 * (6 + 6));
  CHECK(tiny().weight_bytes() == 2 * 1992);
}

TEST_CASE("models have the sizes of their checkpoints", "[model]") {
  struct Row {
    const char* name;
    double parameters;                // numbers in the checkpoint
    double kv_bytes_per_token_layer;  // 2 · KV heads · head_dim · 2 bytes
  };
  const std::vector<Row> rows = {
      {"llama-2-13b", 13015864320, 20480},
      {"llama-3-8b", 8030261248, 4096},
      {"llama-3-8b-262k", 8030261248, 4096},
      {"llama-3-8b-1048k", 8030261248, 4096},
      {"llama-3.1-8b", 8030261248, 4096},
      {"llama-3.1-70b", 70553706496, 4096},
      {"llama-3.2-1b", 1235814400, 2048},
      {"llama-3.2-3b", 3212749824, 4096},
      {"mistral-7b-v0.2", 7241732096, 4096},
      {"mistral-7b-v0.3", 7248023552, 4096},
      {"longchat-7b-v1.5-32k", 6738415616, 16384},
      {"qwen2.5-0.5b", 494032768, 512},
      {"qwen2.5-1.5b", 1543714304, 1024},
      {"qwen2.5-3b", 3085938688, 1024},
      {"qwen2.5-7b", 7615616512, 2048},
      {"qwen2.5-7b-1m", 7615616512, 2048},
      {"qwen2.5-14b", 14770033664, 4096},
      {"qwen2.5-32b", 32763876352, 4096},
      {"qwen2.5-72b", 72706203648, 4096},
      {"mixtral-8x7b", 46702792704, 4096},
      {"qwen3-30b-a3b", 30532122624, 2048},
      {"qwen3-235b-a22b", 235093634560, 2048},
      {"qwen3-0.6b", 596049920, 4096},
      {"qwen3-4b", 4022468096, 4096},
      {"qwen3-8b", 8190735360, 4096},
      {"qwen3-14b", 14768307200, 4096},
      {"qwen3-32b", 32762123264, 4096},
      {"qwen3-next-80b-a3b", 79674391296, 2048},
      {"qwen3.5-27b", 26895998464, 4096},
      {"qwen3.5-35b-a3b", 34660610688, 2048},
      {"qwen3.5-122b-a10b", 122111526912, 2048},
      {"qwen3.5-397b-a17b", 396346350336, 2048},
      {"minimax-m1", 456089655296, 4096},
      {"llama-4-maverick", 400711848960, 4096},
      {"jamba-v0.1", 51570323328, 4096},
      {"jamba-1.5-large", 398555145696, 4096},
      {"yi-9b-200k", 8829407232, 2048},
      {"deepseek-r1-distill-llama-8b", 8030261248, 4096},
      {"deepseek-r1-distill-qwen-7b", 7615616512, 2048},
      {"deepseek-r1-distill-qwen-14b", 14770033664, 4096},
      {"deepseek-r1-distill-qwen-32b", 32763876352, 4096},
      {"deepseek-r1-distill-llama-70b", 70553706496, 4096},
  };
  std::set<std::string> checked;
  for (const Row& row : rows) {
    CAPTURE(row.name);
    const Model model = model_named(row.name);
    CHECK(model.name == row.name);
    CHECK(model.parameters() == row.parameters);
    CHECK(model.kv_bytes_per_token_layer() == row.kv_bytes_per_token_layer);
    checked.insert(row.name);
  }
  for (const auto& file : fs::directory_iterator(fs::path(KVCAST_SOURCE_DIR) / "configs/models")) {
    const std::string name = file.path().stem().string();
    // Models with omitted tensors are checked to a thousandth with their experts (deployment_test.cpp) or recurrences.
    const bool about = name.starts_with("deepseek-v3") || name.starts_with("gpt-oss") || name.starts_with("gemma-3") ||
                       name.starts_with("glm-5") || name == "kimi-k2" || name == "minimax-m2.5" ||
                       name.starts_with("deepseek-v4") || name == "llama-4-scout" || name.starts_with("gemma-4") ||
                       name == "minimax-m3" || name == "kimi-linear-48b-a3b" || name.starts_with("nemotron-3") ||
                       name == "kimi-k3";
    INFO("rows above lack " << name << ": add the checkpoint's number of parameters");
    if (!about) CHECK(checked.count(name) == 1);
  }
}

TEST_CASE("the size of a batch's KV cache equals the one worked out by hand", "[model]") {
  // 80 layers · 2 · 8 heads · 128 · 2 bytes = 327680 bytes a token; 32 sequences of 32768 tokens: 320 GiB.
  CHECK(model_named("llama-3.1-70b").kv_bytes_per_token() * 32 * 32768 == 320.0 * 1024 * 1024 * 1024);
}

TEST_CASE("positions are scaled as in the checkpoints", "[model]") {
  const Rope llama = model_named("llama-3.1-8b").rope;
  CHECK(llama.scaling == Rope::Scaling::kLlama3);
  CHECK(llama.theta == 500000);
  CHECK(llama.factor == 8);
  CHECK(llama.low_freq_factor == 1);
  CHECK(llama.high_freq_factor == 4);
  CHECK(llama.original_context == 8192);
  const Rope longchat = model_named("longchat-7b-v1.5-32k").rope;
  CHECK(longchat.scaling == Rope::Scaling::kLinear);
  CHECK(longchat.factor == 8);
  CHECK(longchat.original_context == 4096);
  CHECK(model_named("qwen2.5-7b").rope.scaling == Rope::Scaling::kNone);
}

TEST_CASE("spellings used in papers resolve to the model", "[model][find]") {
  const std::map<std::string, std::string> spellings = {{"Llama-3.1-8B-Instruct", "llama-3.1-8b"},
                                                        {"Llama3.1-8B-Ins", "llama-3.1-8b"},
                                                        {"Llama3.1-70B-Instruct", "llama-3.1-70b"},
                                                        {"Llama-3-8B", "llama-3-8b"},
                                                        {"Llama-3-8B-262K", "llama-3-8b-262k"},
                                                        {"Llama-3.2-3B-Instruct", "llama-3.2-3b"},
                                                        {"LongChat-7B-v1.5", "longchat-7b-v1.5-32k"},
                                                        {"Mistral-7B-Instruct-v0.2", "mistral-7b-v0.2"},
                                                        {"Mistral-7B-Ins-v0.2", "mistral-7b-v0.2"},
                                                        {"Qwen-2.5-7B", "qwen2.5-7b"},
                                                        {"Qwen-2.5-7B-Instruct", "qwen2.5-7b"},
                                                        {"Qwen-2.5-14B", "qwen2.5-14b"},
                                                        {"DeepSeek-R1-Qwen-14B", "deepseek-r1-distill-qwen-14b"},
                                                        {"Yi-9B", "yi-9b-200k"}};
  for (const auto& [spelling, name] : spellings) CHECK(model_named(spelling).name == name);
}

TEST_CASE("no two models have the same name", "[model]") {
  std::map<std::string, std::string> owner;
  for (const auto& file : fs::directory_iterator(fs::path(KVCAST_SOURCE_DIR) / "configs/models")) {
    const std::string stem = file.path().stem().string();
    const Model model = read_model(file.path().string());
    std::vector<std::string> names = model.aliases;
    names.push_back(model.name);
    if (model.title != model.name) names.push_back(model.title);
    for (const std::string& name : names) {
      const auto [taken, is_new] = owner.emplace(name, stem);
      CAPTURE(name, taken->second, stem);
      CHECK(is_new);
    }
  }
}

TEST_CASE("latent attention requires its widths", "[model]") {
  CHECK(error_with({{5, "attention: mla"}}).find("the required key \"latent\" is missing") != std::string::npos);
  const Model model = model_named("DeepSeek-V3");
  REQUIRE(model.latent.has_value());
  CHECK(model.latent->cached() == 576);
  CHECK(model.n_kv_heads == 1);
  CHECK(model.experts->dense_layers == 3);
}

TEST_CASE("inconsistent models are rejected", "[model]") {
  CHECK(error_with({}) == "no error");
  CHECK(error_with({{5, "n_kv_heads: 3"}}) == "tiny.yaml:5:13: n_kv_heads: 3 KV heads do not divide 4 query heads");
  CHECK(error_with({{5, "n_kv_heads: 8"}}) == "tiny.yaml:5:13: n_kv_heads: 8 KV heads do not divide 4 query heads");
  CHECK(error_with({{6, "head_dim: 7"}}) == "tiny.yaml:6:11: head_dim: 7 is odd, and RoPE turns pairs of dimensions");
  CHECK(error_with({{2, "layers: 0"}}) == "tiny.yaml:2:9: layers: 0 is out of range, must be between 1 and 10000");
  CHECK(error_with({{2, "layers: many"}}) == "tiny.yaml:2:9: layers: expected an integer, found \"many\"");
  CHECK(error_with({{2, "# gone"}}) == "tiny.yaml:1:1: model: the required key \"layers\" is missing");
  CHECK(error_with({{1, "# gone"}}) == "tiny.yaml:2:1: model: the required key \"title\" is missing");
  CHECK(error_with({{11, "# gone"}}) == "tiny.yaml:1:1: model: the required key \"source\" is missing");
  CHECK_THAT(error_with({{12, "layer: 3"}}), Catch::StartsWith("tiny.yaml:12:1: model: unknown key \"layer\" (did you "
                                                               "mean \"layers\"?); known: title, attention,"));
  CHECK_THAT(error_with({{12, "attention: linear"}}), Catch::EndsWith("unknown value \"linear\"; known: gqa, mla"));
}

TEST_CASE("layers of a model may be dense before those with experts, and a precision of experts requires experts",
          "[model]") {
  const auto experts = [](int dense) {
    return fmt::format("experts: {{count: 4, active: 2, ffn: 6, dense_layers: {}}}", dense);
  };
  const Model model = tiny({{12, experts(1)}, {13, "expert_weights: fp8"}});
  CHECK_FALSE(model.has_experts(0));
  CHECK(model.has_experts(1));
  CHECK(error_with({{12, experts(2)}}) == "tiny.yaml:12:54: dense_layers: 2 is out of range, must be between 0 and 1");
  CHECK(error_with({{12, "expert_weights: fp8"}}) ==
        "tiny.yaml:12:17: expert_weights: the model has no experts; `weights` is the precision of its networks");
}

TEST_CASE("inconsistent rope sections are rejected", "[model]") {
  const auto message = [](const std::string& rope) { return error_with({{10, "rope: " + rope}}); };
  CHECK(message("{theta: 0}") == "tiny.yaml:10:15: theta: 0 is out of range, must be between 1 and 1000000000000");
  CHECK(message("{theta: 1e4, scaling: ntk}") ==
        "tiny.yaml:10:29: scaling: unknown value \"ntk\"; known: none, linear, llama3, yarn");
  CHECK(message("{theta: 1e4, scaling: linear, factor: 8}") ==
        "tiny.yaml:10:7: rope: the required key \"original_context\" is missing");
  CHECK(message("{theta: 1e4, factor: 8}") == "tiny.yaml:10:20: rope: unknown key \"factor\"; known: theta, scaling");
  CHECK(message(
            "{theta: 1e4, scaling: llama3, factor: 8, low_freq_factor: 4, high_freq_factor: 3, original_context: 1}") ==
        "tiny.yaml:10:86: high_freq_factor: must not be below low_freq_factor");
  CHECK(message("{theta: 1e4, scaling: linear, factor: 8, original_context: 8192}") ==
        "tiny.yaml:10:7: rope: original_context 8192 is above max_context 4096");
}

}  // namespace kvcast::tests
