// kvcast models [NAME]: the models, or the shape of one and the sizes that follow from it; kvcast models import: a
// model from its published config.json.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "api/catalogue.hpp"
#include "app/commands.hpp"
#include "app/outputs.hpp"
#include "app/settings.hpp"
#include "base/units.hpp"
#include "base/whole_file.hpp"
#include "config/card.hpp"
#include "config/model.hpp"
#include "config/yaml.hpp"

namespace kvcast::app {
namespace {

using config::Model;

constexpr double kBillion = 1e9;

// The layers of each kind, and what they keep.
void print_compressed(const Model& m) {
  using Kind = config::Compressed::Kind;
  const config::Compressed& c = *m.compressed;
  constexpr std::pair<Kind, const char*> kKinds[] = {{Kind::kSelecting, "entries that an indexer selects (CSA)"},
                                                     {Kind::kAll, "all entries (HCA)"},
                                                     {Kind::kWindow, "no entries"}};
  for (const auto& [kind, text] : kKinds) {
    const int layers = c.count(kind, m.layers);
    if (layers == 0) continue;
    fmt::print("{} of {} layers attend to the last {} tokens and {}", layers, m.layers, c.window, text);
    if (kind == Kind::kSelecting) fmt::print(", {} of one per {} tokens", c.index_best, c.csa_tokens);
    if (kind == Kind::kAll) fmt::print(", one per {} tokens", c.hca_tokens);
    fmt::print(": {} of KV and {} of index per token and layer, {} for a sequence\n",
               format_quantity(c.bytes_per_token(kind, m.head_dim, m.cache) - c.index_bytes_per_token(kind),
                               Dimension::kBytes),
               format_quantity(c.index_bytes_per_token(kind), Dimension::kBytes),
               format_quantity(c.fixed_bytes(kind, m.head_dim, m.cache), Dimension::kBytes));
  }
}

void print_one(const Model& m) {
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
    if (m.experts->hidden > 0) fmt::print("routed experts work at a width of {}\n", m.experts->hidden);
  }
  if (m.residuals.every > 0)
    fmt::print("residuals are weighed over blocks of {} layers, {:.2f} inputs in the mean\n", m.residuals.every,
               m.residuals.inputs);
  if (m.sliding_window > 0) {
    const Model sliding = config::sliding_layers(m);
    fmt::print("{} of {} layers attend to {} {} tokens alone", m.layers_with(config::Mixer::kSliding), m.layers,
               m.chunked ? "their own chunk of" : "the last", m.sliding_window);
    if (sliding.n_kv_heads != m.n_kv_heads || sliding.head_dim != m.head_dim)
      fmt::print(", with {} KV heads of {} dimensions", sliding.n_kv_heads, sliding.head_dim);
    fmt::print("\n");
  }
  if (m.compressed) print_compressed(m);
  if (const auto& r = m.recurrence) {
    fmt::print(
        "{} of {} layers have a recurrence ({}) with {} heads of {} x {}, whose state takes {} for a sequence; {} "
        "attend\n",
        m.layers_with(config::Mixer::kRecurrence), m.layers, config::recurrence_name(r->kind), r->heads, r->key_dim,
        r->value_dim, format_quantity(m.state_bytes(), Dimension::kBytes), m.full_layers());
  }
  if (m.weights != config::Precision::kBf16 || m.expert_weights != config::Precision::kBf16) {
    fmt::print("released in {}, experts in {}, shared ones in {}\n", config::precision_name(m.weights),
               config::precision_name(m.expert_weights), config::precision_name(m.shared_weights));
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

int import_model(const std::string& name, const std::string& out) {
  const std::string path = config::card_at(name, {}).value_or(name);
  const config::Card card = config::read_card(path);
  const Model model = config::read_model(card.model, config::card_name(path));
  std::string text =
      fmt::format("# {:.2f} billion parameters, {} of KV cache per token.\n", model.parameters() / kBillion,
                  format_quantity(model.kv_bytes_per_token(), Dimension::kBytes));
  for (const std::string& note : card.notes) text += fmt::format("# {}\n", note);
  for (const auto& [key, value] : card.model.entries()) text += fmt::format("{}: {}\n", key, config::flow_text(value));
  if (out.empty() || out == "-") return fmt::print("{}", text), 0;
  refuse_existing(out);
  for (const std::string& note : card.notes) fmt::print(stderr, "{}\n", note);
  write_whole_file(out, text);
  fmt::print("wrote {}\n", out);
  return 0;
}

void add_import(CLI::App& models, int& result) {
  CLI::App* command = models.add_subcommand("import", "write the model of a published config.json as a file of keys");
  auto file = std::make_shared<std::string>();
  auto out = std::make_shared<std::string>();
  command->add_option("FILE", *file, "config.json, or the folder that has it")->required();
  command->add_option("-o,--out", *out, "the YAML file to write, which does not exist yet; printed without it");
  command->callback([file, out, &result] { result = import_model(*file, *out); });
}

}  // namespace

void add_models(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("models", "list the models, or the shape of one");
  auto name = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  command->add_option("NAME", *name, "a model: a name, an alias or a path");
  command->add_flag("--json", *as_json, "print JSON");
  add_import(*command, result);
  command->callback([command, name, as_json, &result] {
    if (!command->get_subcommands().empty()) return;
    result = 0;
    if (name->empty() && *as_json) return fmt::print("{}\n", api::models_json().dump(1));
    if (name->empty()) return void(result = list_models());
    const Model m = config::model_named(*name);
    if (!*as_json) return print_one(m);
    fmt::print("{}\n", api::to_json(m).dump(1));
  });
}

}  // namespace kvcast::app
