// Published config.json files: parameters against the checkpoints' own counts, layer patterns, precisions, and
// refusals. cards.json has the published shapes of the models, one file a line.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "config/card.hpp"
#include "config/card_table.hpp"
#include "config/find.hpp"
#include "config/model.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace config;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

json all_cards() {
  std::ifstream file(fs::path(KVCAST_TESTS_DIR) / "unit/config/cards.json");
  return json::parse(file);
}

std::string written_card(const TemporaryDirectory& directory, const std::string& name, const json& card) {
  const fs::path folder = fs::path(directory.path()) / name;
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << card.dump(1);
  return (folder / "config.json").string();
}

Model model_of(const json& card) {
  const TemporaryDirectory directory;
  return model_named(written_card(directory, "card", card));
}

Card notes_of(const json& card) {
  const TemporaryDirectory directory;
  return read_card(written_card(directory, "card", card));
}

std::string card_refusal(const json& card) {
  return error_of([&] { model_of(card); });
}

json card_of(const char* name, const json& changes = {}) {
  json card = all_cards().at(name);
  if (changes.is_object()) card.merge_patch(changes);
  return card;
}

}  // namespace

TEST_CASE("models read from their cards have the parameters of their checkpoints", "[card]") {
  // Parameters that the checkpoints' files on Hugging Face state, of multimodal ones those of the language model.
  // gemma-3-27b: 62 layers of 5376·128·(2·32 + 2·16) + 3·5376·21504 + 4·5376 + 2·128, embedding 262208·5376, norm 5376.
  // DeepSeek-V3: without the module that predicts a further token. Phi-3.5-MoE, gpt-oss: with all biases.
  // DeepSeek-V4, Llama 4 and Gemma 4: the sum over the tensors of their code (models' reports: 284 B and 1.6 T, 109 B
  // and 400 B with the vision model, 31 B and 26 B with theirs). Jamba: the checkpoint.
  const std::map<std::string, double> published = {{"Llama-3.1-8B", 8030261248},
                                                   {"longchat-7b-v1.5-32k", 6738415616},
                                                   {"Yi-34B", 34388917248},
                                                   {"Mistral-7B-v0.1", 7241732096},
                                                   {"Mistral-Nemo-Instruct-2407", 12247782400},
                                                   {"Mistral-Small-3.1-24B-Instruct-2503", 23572403200},
                                                   {"Qwen2.5-3B", 3085938688},
                                                   {"Qwen1.5-MoE-A2.7B", 14315784192},
                                                   {"Qwen3-8B", 8190735360},
                                                   {"Qwen3-30B-A3B", 30532122624},
                                                   {"Phi-3-mini-128k-instruct", 3821079552},
                                                   {"phi-4", 14659507200},
                                                   {"Phi-3.5-MoE-instruct", 41873153344},
                                                   {"gemma-2-9b", 9241705984},
                                                   {"gemma-3-1b-it", 999885952},
                                                   {"gemma-3-27b-it", 27009346304},
                                                   {"glm-4-9b-chat", 9399951360},
                                                   {"GLM-4-9B-0414", 9400279040},
                                                   {"c4ai-command-r-v01", 34980831232},
                                                   {"c4ai-command-r7b-12-2024", 8028033024},
                                                   {"internlm2-chat-7b", 7737708544},
                                                   {"DeepSeek-V2-Lite", 15706484224},
                                                   {"DeepSeek-V3", 671026419200},
                                                   {"deepseek-moe-16b-base", 16375728128},
                                                   {"Mixtral-8x22B-v0.1", 140620634112},
                                                   {"gpt-oss-20b", 20914757184},
                                                   {"SmolLM3-3B", 3075098624},
                                                   {"Seed-OSS-36B-Instruct", 36151104512},
                                                   {"granite-3.1-8b-instruct", 8170848256},
                                                   {"OLMo-2-1124-7B", 7298617344},
                                                   {"EXAONE-3.5-7.8B-Instruct", 7818448896},
                                                   {"dots.llm1.inst", 142774381696},
                                                   {"Qwen3-Next-80B-A3B-Instruct", 79674391296},
                                                   {"Qwen3.5-27B", 26895998464},
                                                   {"Kimi-Linear-48B-A3B-Instruct", 49122681728},
                                                   {"MiniMax-M1-80k", 456089655296},
                                                   {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31577937344},
                                                   {"NVIDIA-Nemotron-3-Super-120B-A12B-BF16", 120668687360},
                                                   {"Kimi-K3", 2779484133120},
                                                   {"DeepSeek-V4-Flash", 284332230231},
                                                   {"DeepSeek-V4-Pro", 1572997179491},
                                                   {"Llama-4-Scout-17B-16E-Instruct", 107769861120},
                                                   {"Llama-4-Maverick-17B-128E-Instruct", 400711848960},
                                                   {"gemma-4-31B-it", 30697345340},
                                                   {"gemma-4-26B-A4B", 25233141790},
                                                   {"Jamba-v0.1", 51570323328}};
  const json cards = all_cards();
  CHECK(cards.size() == published.size());
  const TemporaryDirectory directory;
  for (const auto& [name, card] : cards.items()) {
    CAPTURE(name);
    const Model model = model_named(written_card(directory, name, card));
    CHECK(model.name == name);
    CHECK(model.parameters() == Approx(published.at(name)).epsilon(1e-3));
    CHECK(model.source.starts_with("config.json ("));
  }
}

TEST_CASE("a shipped model equals the one read from its card", "[card]") {
  const std::map<std::string, std::string> shipped = {
      {"Llama-3.1-8B", "llama-3.1-8b"},
      {"longchat-7b-v1.5-32k", "longchat-7b-v1.5-32k"},
      {"Qwen2.5-3B", "qwen2.5-3b"},
      {"Qwen3-8B", "qwen3-8b"},
      {"Qwen3-30B-A3B", "qwen3-30b-a3b"},
      {"gemma-3-27b-it", "gemma-3-27b"},
      {"DeepSeek-V3", "deepseek-v3"},
      {"gpt-oss-20b", "gpt-oss-20b"},
      {"Qwen3-Next-80B-A3B-Instruct", "qwen3-next-80b-a3b"},
      {"Qwen3.5-27B", "qwen3.5-27b"},
      {"Kimi-Linear-48B-A3B-Instruct", "kimi-linear-48b-a3b"},
      {"MiniMax-M1-80k", "minimax-m1"},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"},
      {"NVIDIA-Nemotron-3-Super-120B-A12B-BF16", "nemotron-3-super-120b-a12b"},
      {"Kimi-K3", "kimi-k3"},
      {"DeepSeek-V4-Flash", "deepseek-v4-flash"},
      {"DeepSeek-V4-Pro", "deepseek-v4-pro"},
      {"Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"},
      {"Llama-4-Maverick-17B-128E-Instruct", "llama-4-maverick"},
      {"gemma-4-31B-it", "gemma-4-31b"},
      {"gemma-4-26B-A4B", "gemma-4-26b-a4b"},
      {"Jamba-v0.1", "jamba-v0.1"}};
  for (const auto& [card, name] : shipped) {
    CAPTURE(name);
    Model read = model_of(card_of(card.c_str())), file = model_named(name);
    read.name = file.name, read.title = file.title, read.source = file.source;
    if (name.starts_with("qwen3")) read.max_context = file.max_context;  // with YaRN
    CHECK(canonical(read) == canonical(file));
  }
}

TEST_CASE("windows, experts and precisions are read from cards", "[card]") {
  CHECK(model_of(card_of("gemma-2-9b")).full_every == 2);
  CHECK(model_of(card_of("c4ai-command-r7b-12-2024")).full_every == 4);
  // As EXAONE 4.0 spells it: three local layers and a global one.
  const json spelled = {{"sliding_window_pattern", "LLLG"}, {"layer_types", nullptr}};
  CHECK(model_of(card_of("c4ai-command-r7b-12-2024", spelled)).full_every == 4);
  const json pairs = {{"sliding_window_pattern", "LG"}, {"layer_types", nullptr}};
  CHECK(model_of(card_of("c4ai-command-r7b-12-2024", pairs)).full_every == 2);
  CHECK(model_of(card_of("Qwen1.5-MoE-A2.7B")).experts->shared == 4);  // 5632 / 1408
  CHECK(model_of(card_of("DeepSeek-V2-Lite")).latent->query_rank == 0);
  CHECK(model_of(card_of("DeepSeek-V3")).weights == Precision::kFp8);
  CHECK(model_of(card_of("DeepSeek-V4-Flash")).expert_weights == Precision::kMxfp4);
  CHECK(model_of(card_of("Qwen3-30B-A3B", {{"decoder_sparse_step", 2}})).experts->every == 2);
  CHECK(model_of(card_of("Jamba-v0.1", {{"mamba_dt_rank", "auto"}})).recurrence->step_rank == 256);
  const Model oss = model_of(card_of("gpt-oss-20b"));
  CHECK(oss.weights == Precision::kBf16);
  CHECK(oss.expert_weights == Precision::kMxfp4);
  // All layers slide: contexts up to the window.
  CHECK(model_of(card_of("Mistral-7B-v0.1")).max_context == 4096);
  CHECK(model_of(card_of("Mistral-7B-v0.1")).sliding_window == 0);
  // Scaled positions: 4096 · 8 for linear ones, and the stated ones for longrope and llama3.
  CHECK(model_of(card_of("longchat-7b-v1.5-32k")).max_context == 32768);
  CHECK(model_of(card_of("internlm2-chat-7b")).max_context == 65536);
  CHECK(model_of(card_of("Phi-3-mini-128k-instruct")).max_context == 131072);
  const json yarn = {
      {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}}}};
  CHECK(model_of(card_of("Qwen3-8B", yarn)).max_context == 131072);
  const json newer = {{"rope_theta", nullptr}, {"rope_parameters", {{"rope_theta", 5e5}, {"rope_type", "default"}}}};
  CHECK(model_of(card_of("Qwen3-8B", newer)).rope.theta == 5e5);
}

TEST_CASE("quantizations of cards and of files beside them are read", "[card]") {
  const auto weights = [](const json& quantization) {
    return precision_name(model_of(card_of("Llama-3.1-8B", {{"quantization_config", quantization}})).weights);
  };
  CHECK(weights({{"quant_method", "awq"}, {"bits", 4}}) == "int4");
  CHECK(weights({{"quant_method", "gptq"}, {"bits", 8}}) == "int8");
  CHECK(weights({{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}}) == "int4");
  CHECK(weights({{"quant_method", "compressed-tensors"},
                 {"config_groups", {{"group_0", {{"weights", {{"num_bits", 8}, {"type", "float"}}}}}}}}) == "fp8");
  CHECK_THAT(card_refusal(card_of("Llama-3.1-8B", {{"quantization_config", {{"quant_method", "hqq"}}}})),
             Catch::Contains("weights quantized by \"hqq\""));
  const TemporaryDirectory directory;
  const std::string path = written_card(directory, "m", card_of("Qwen3-30B-A3B"));
  std::ofstream(fs::path(path).parent_path() / "hf_quant_config.json")
      << R"({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["*self_attn*"]}})";
  const Model model = model_named(directory.path() + "/m");  // a folder is the card in it
  CHECK(model.weights == Precision::kBf16);
  CHECK(model.expert_weights == Precision::kNvfp4);
  CHECK_THAT(read_card(path).notes.at(0), Catch::Contains("kv_cache: fp8"));
}

TEST_CASE("what a card has beyond a model of kvcast is named", "[card]") {
  CHECK(notes_of(card_of("Llama-3.1-8B")).notes.empty());
  const auto notes = notes_of(card_of("Llama-3.1-8B", {{"attention_sink_size", 4}, {"rope_scaling", nullptr}})).notes;
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], Catch::Contains("unknown key \"attention_sink_size\" (4) is not read"));
  const std::string unknown =
      card_refusal(card_of("Llama-3.1-8B", {{"architectures", {"LlamaForCausalML"}}, {"model_type", "lama"}}));
  CHECK_THAT(unknown,
             Catch::Contains("unknown architecture \"LlamaForCausalML\" (did you mean \"LlamaForCausalLM\"?)"));
  CHECK_THAT(card_refusal({{"architectures", {"FalconH1ForCausalLM"}}}), Catch::Contains("state spaces"));
  CHECK(notes_of(card_of("Kimi-K3")).notes.size() == 1);  // it has a tower for images
  CHECK_THAT(card_refusal({{"hidden_size", 4096}}), Catch::Contains("neither `architectures` nor `model_type`"));
  CHECK_THAT(card_refusal({{"architectures", {"Qwen3ForCausalLM"}}, {"hidden_size", 4096}}),
             Catch::Contains("the file lacks num_hidden_layers, num_attention_heads"));
  CHECK_THAT(card_refusal(card_of("gpt-oss-20b", {{"layer_types", {"full_attention"}}})),
             Catch::Contains("layer_types: an entry a layer is expected"));
  CHECK_THAT(card_refusal(card_of("Qwen3-30B-A3B", {{"mlp_only_layers", {4}}})),
             Catch::Contains("this order of layers with and without experts"));
  CHECK_THAT(card_refusal(card_of("DeepSeek-V4-Flash", {{"compress_ratios", {4, 128}}})),
             Catch::Contains("compress_ratios: an entry a layer is expected"));
  CHECK_THAT(card_refusal(card_of("DeepSeek-V4-Flash", {{"o_groups", nullptr}})),
             Catch::Contains("compressed.output_groups"));
  CHECK_THAT(card_refusal(card_of("gemma-4-31B-it", {{"text_config", {{"num_kv_shared_layers", 20}}}})),
             Catch::Contains("not modelled: layers that use the cache of others"));
  CHECK_THAT(card_refusal(card_of("Jamba-v0.1", {{"mamba_expand", 0}})), Catch::Contains("recurrence.expand"));
  CHECK_THAT(card_refusal(card_of("Qwen1.5-MoE-A2.7B", {{"shared_expert_intermediate_size", 5633}})),
             Catch::Contains("a shared expert of width 5633"));
  CHECK_THAT(card_refusal(card_of("Llama-3.1-8B", {{"num_key_value_heads", 7}})),
             Catch::Contains("n_kv_heads: 7 KV heads do not divide 32 query heads"));
}

TEST_CASE("a model takes changes of its keys, which its name states", "[card][model]") {
  const Model base = model_named("qwen3-8b"), longer = model_named("{like: qwen3-8b, max_context: 1M}");
  CHECK(longer.max_context == 1 << 20);
  CHECK(longer.name == "qwen3-8b (max_context 1048576)");
  CHECK(longer.parameters() == base.parameters());
  CHECK(model_named("{like: llama-3.1-8b, rope: {factor: 16}}").rope.factor == 16);
  CHECK(model_named("{like: llama-3.1-8b, rope: {factor: 16}}").rope.original_context == 8192);
  CHECK(model_named("{like: qwen3-8b, title: Mine}").name == "qwen3-8b");
  const TemporaryDirectory directory;
  const std::string path = written_card(directory, "mine", card_of("Qwen3-8B"));
  CHECK(model_named("{config: " + path + "}").name == "mine");
  CHECK(model_named("{config: " + path + ", layers: 12}").layers == 12);
  CHECK_THAT(error_of([] { model_named("{like: qwen3-8b, max_contex: 1M}"); }), Catch::Contains("max_contex"));
  CHECK_THAT(error_of([] { model_named("{max_context: 1M}"); }), Catch::Contains("either `like` or `config`"));
  CHECK_THAT(error_of([] { read_model(parse_request("config: /etc/passwd")); }), Catch::Contains("cannot name files"));
}

TEST_CASE("an id of Hugging Face finds the shipped model", "[card][find]") {
  const std::map<std::string, std::string> ids = {
      {"meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"},
      {"meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"},
      {"meta-llama/Llama-2-13b-chat-hf", "llama-2-13b"},
      {"Qwen/Qwen3-8B", "qwen3-8b"},
      {"Qwen/Qwen2.5-7B-Instruct-1M", "qwen2.5-7b-1m"},
      {"Qwen/Qwen2.5-72B-Instruct", "qwen2.5-72b"},
      {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"},
      {"mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"},
      {"deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "deepseek-r1-distill-llama-8b"},
      {"deepseek-ai/DeepSeek-V3", "deepseek-v3"},
      {"deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2"},
      {"google/gemma-3-27b-it", "gemma-3-27b"},
      {"openai/gpt-oss-120b", "gpt-oss-120b"},
      {"gradientai/Llama-3-8B-Instruct-Gradient-1048k", "llama-3-8b-1048k"},
      {"lmsys/longchat-7b-v1.5-32k", "longchat-7b-v1.5-32k"},
      {"01-ai/Yi-9B-200K", "yi-9b-200k"}};
  for (const auto& [id, name] : ids) CHECK(model_named(id).name == name);
  CHECK_THAT(error_of([] { model_named("meta-llama/Llama-9-8B"); }), Catch::Contains("Llama-9-8B"));
}

}  // namespace kvcast::tests
