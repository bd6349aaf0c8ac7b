// kvcast models [NAME]: the models, or the shape of one and the sizes that follow from it.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/settings.hpp"
#include "base/units.hpp"
#include "config/find.hpp"
#include "config/model.hpp"
#include "serve/catalogue.hpp"

namespace kvcast::app {
namespace {

using config::Model;

void print_one(const Model& m) {
  constexpr double kBillion = 1e9;
  fmt::print("{}: {}\n", m.name, m.title);
  if (!m.aliases.empty()) fmt::print("also known as {}\n", fmt::join(m.aliases, ", "));
  fmt::print("{} layers of width {}, feed-forward width {}, vocabulary {}{}\n", m.layers, m.hidden, m.ffn, m.vocab,
             m.tie_embeddings ? ", tied embeddings" : "");
  if (m.latent) {
    fmt::print("{} query heads over a latent vector of {} and a shared key of {} dimensions", m.n_q_heads,
               m.latent->rank, m.latent->rope_dim);
  } else {
    fmt::print("{} query heads and {} KV heads of {} dimensions", m.n_q_heads, m.n_kv_heads, m.head_dim);
  }
  fmt::print("; contexts up to {} tokens\n", m.max_context);
  if (m.experts) {
    fmt::print("{} experts of width {}, {} of them active per token, {} shared\n", m.experts->count, m.experts->ffn,
               m.experts->active, m.experts->shared);
  }
  if (m.sliding_window > 0) {
    fmt::print("{} of {} layers attend to the last {} tokens alone\n", m.layers - m.full_layers(), m.layers,
               m.sliding_window);
  }
  if (m.weights != config::Precision::kBf16 || m.expert_weights != config::Precision::kBf16) {
    fmt::print("released in {}, experts in {}\n", config::precision_name(m.weights),
               config::precision_name(m.expert_weights));
  }
  fmt::print("{:.2f} billion parameters, {} of weights; {} of KV cache per token\n", m.parameters() / kBillion,
             format_quantity(m.weight_bytes(), Dimension::kBytes),
             format_quantity(m.kv_bytes_per_token(), Dimension::kBytes));
  fmt::print("Source: {}\n", m.source);
}

void print_line(const Model& m) {
  fmt::print("  {:<30} {:<40} weights {:>8}, KV cache {:>8} per token\n", m.name, m.title,
             format_quantity(m.weight_bytes(), Dimension::kBytes),
             format_quantity(m.kv_bytes_per_token(), Dimension::kBytes));
}

int list_models() {
  const int result = for_each_config("models", [](const std::string& file) { print_line(config::read_model(file)); });
  fmt::print("\n`kvcast models NAME` prints the shape of one.\n");
  return result;
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
    if (name->empty() && *as_json) return fmt::print("{}\n", serve::models_json().dump(1));
    if (name->empty()) return void(result = list_models());
    const Model m = config::read_model(config::find_config("models", *name, {}));
    if (!*as_json) return print_one(m);
    fmt::print("{}\n", serve::to_json(m).dump(1));
  });
}

}  // namespace kvcast::app
