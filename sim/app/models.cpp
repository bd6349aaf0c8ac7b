// kvcast models [NAME]: the models, or the shape of one and what follows from it.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "base/units.hpp"
#include "config/find.hpp"
#include "config/model.hpp"

namespace kvcast::app {
namespace {

using config::Model;
using nlohmann::json;

json rope_json(const config::Rope& rope) {
  json out = {{"theta", rope.theta}};
  if (rope.scaling == config::Rope::Scaling::kNone) return out;
  const bool llama3 = rope.scaling == config::Rope::Scaling::kLlama3;
  out["scaling"] = llama3 ? "llama3" : "linear";
  out["factor"] = rope.factor;
  out["original_context"] = rope.original_context;
  if (llama3) out["low_freq_factor"] = rope.low_freq_factor;
  if (llama3) out["high_freq_factor"] = rope.high_freq_factor;
  return out;
}

// Keys as in a model's file, then what follows from them.
json to_json(const Model& m) {
  return {{"name", m.name},
          {"title", m.title},
          {"aliases", m.aliases},
          {"layers", m.layers},
          {"hidden", m.hidden},
          {"n_q_heads", m.n_q_heads},
          {"n_kv_heads", m.n_kv_heads},
          {"head_dim", m.head_dim},
          {"ffn", m.ffn},
          {"vocab", m.vocab},
          {"tie_embeddings", m.tie_embeddings},
          {"qkv_bias", m.qkv_bias},
          {"qk_norm", m.qk_norm},
          {"max_context", m.max_context},
          {"rope", rope_json(m.rope)},
          {"source", m.source},
          {"parameters", m.parameters()},
          {"weight_bytes", m.weight_bytes()},
          {"kv_bytes_per_token", m.kv_bytes_per_token()}};
}

void print_one(const Model& m) {
  constexpr double kBillion = 1e9;
  fmt::print("{}: {}\n", m.name, m.title);
  if (!m.aliases.empty()) fmt::print("also known as {}\n", fmt::join(m.aliases, ", "));
  fmt::print("{} layers of width {}, feed-forward width {}, vocabulary {}{}\n", m.layers, m.hidden, m.ffn, m.vocab,
             m.tie_embeddings ? ", tied embeddings" : "");
  fmt::print("{} query heads and {} KV heads of {} dimensions; contexts up to {} tokens\n", m.n_q_heads, m.n_kv_heads,
             m.head_dim, m.max_context);
  fmt::print("{:.2f} billion parameters, {} of weights; {} of KV cache a token\n", m.parameters() / kBillion,
             format_quantity(m.weight_bytes(), Dimension::kBytes),
             format_quantity(m.kv_bytes_per_token(), Dimension::kBytes));
  fmt::print("Source: {}\n", m.source);
}

void print_line(const Model& m) {
  fmt::print("  {:<30} {:<40} weights {:>8}, KV cache {:>8} a token\n", m.name, m.title,
             format_quantity(m.weight_bytes(), Dimension::kBytes),
             format_quantity(m.kv_bytes_per_token(), Dimension::kBytes));
}

void list_models(bool as_json) {
  json all = json::array();
  for (const std::string& file : config::config_files("models")) {
    try {
      const Model m = config::read_model(file);
      if (!as_json) print_line(m);
      all.push_back(to_json(m));
    } catch (const UserError& error) {  // a model that kvcast knows and does not model is listed with the reason
      const std::string name = std::filesystem::path(file).stem().string();
      if (!as_json) fmt::print("  {:<30} refused: {}\n", name, error.what());
      all.push_back({{"name", name}, {"refused", error.what()}});
    }
  }
  if (as_json) return fmt::print("{}\n", all.dump(1));
  fmt::print("\n`kvcast models NAME` prints the shape of one.\n");
}

}  // namespace

void add_models(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("models", "list the models, or the shape of one");
  auto name = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  command->add_option("NAME", *name, "a model: a name, an alias or a path");
  command->add_flag("--json", *as_json, "print JSON");
  command->callback([name, as_json, &result] {
    result = 0;
    if (name->empty()) return list_models(*as_json);
    const Model m = config::read_model(config::find_config("models", *name, {}));
    if (!*as_json) return print_one(m);
    fmt::print("{}\n", to_json(m).dump(1));
  });
}

}  // namespace kvcast::app
