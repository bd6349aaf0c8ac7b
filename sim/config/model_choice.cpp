// Reads `model:` of a run.

#include "base/hash.hpp"
#include "config/card.hpp"
#include "config/find.hpp"
#include "config/include.hpp"
#include "config/model.hpp"
#include "config/section.hpp"

namespace kvcast::config {
namespace {

struct Named {
  Node map;
  std::string name;
};

Named card_of(const std::string& path) { return {read_card(path).model, card_name(path)}; }

// `model: llama.json` and `model: FOLDER` of a download are cards, any other path is a file of keys.
Named named(const Node& choice, std::string_view key) {
  const std::string text = read_text(choice, key);
  if (const auto card = card_at(text, choice.where())) return card_of(*card);
  const std::string path = find_config("models", text, choice.where());
  const Model checked = read_model(path);
  return {load_yaml(path), checked.name};
}

Named config_of(const Node& config) {
  const std::string text = read_text(config, "config");
  if (config.where().from_request) refuse_request_for_file(config.where());
  return card_of(card_at(text, config.where()).value_or(text));
}

// "max_context 1048576, rope.factor 4": the changes that the name of a model states.
void add_changes(const std::string& prefix, const Node& map, std::vector<std::string>& changes) {
  for (const auto& [key, value] : map.entries()) {
    if (key == "title" || key == "source") continue;
    if (value.kind() == Node::Kind::kMap) {
      add_changes(prefix + key + ".", value, changes);
    } else {
      const std::string text = is_scalar(&value) ? value.text() : content_hash(value.canonical()).substr(0, 6);
      changes.push_back(prefix + key + " " + text);
    }
  }
}

}  // namespace

Model read_model(const Node& choice) {
  if (choice.kind() == Node::Kind::kScalar) {
    const Named whole = named(choice, "model");
    return read_model(whole.map, whole.name);
  }
  if (choice.kind() != Node::Kind::kMap) {
    throw UserError(choice.where(),
                    "model: expected a name, or a map with `like` or `config`, found " + describe(choice));
  }
  Section section(choice, "model");
  const auto like = section.optional_node("like"), config = section.optional_node("config");
  if (like.has_value() == config.has_value()) {
    throw UserError(choice.where(), "model: give either `like` or `config`, and the keys that differ");
  }
  const Named base = like ? named(*like, "like") : config_of(*config);
  const Node own = choice.without({"like", "config"});
  const Node whole =
      overlay(own, base.map.without({"aliases"}), {"rope", "experts", "sliding", "latent", "recurrence", "compressed"});
  std::vector<std::string> changes;
  add_changes("", own, changes);
  const std::string suffix = changes.empty() ? "" : fmt::format(" ({})", fmt::join(changes, ", "));
  Model model = read_model(whole, base.name + suffix);
  if (own.find("title") == nullptr) model.title += suffix;
  return model;
}

std::vector<std::string> card_notes(const Node& choice) {
  const Node* named = &choice;
  for (const char* const key : {"like", "config"}) {
    if (named == &choice && choice.find(key) != nullptr) named = choice.find(key);
  }
  const auto card = is_scalar(named) ? card_at(named->text(), named->where()) : std::nullopt;
  return card ? read_card(*card).notes : std::vector<std::string>();
}

Model model_named(const std::string& choice) {
  const bool is_map = choice.starts_with('{');
  return read_model(is_map ? parse_yaml(choice, "model") : Node::scalar(choice, {}));
}

std::string choice_text(const Node& choice) {
  return choice.kind() == Node::Kind::kScalar ? choice.text() : choice.canonical();
}

}  // namespace kvcast::config
