#include "config/machine_names.hpp"

#include <fmt/ranges.h>

#include <vector>

#include "config/find.hpp"
#include "config/section.hpp"
#include "config/text.hpp"

namespace kvcast::config {
namespace {

struct KnownCard {
  std::vector<std::string> names, choose;
  std::optional<Node> like;
  std::string scope;
};

std::vector<KnownCard> read_known_cards(const std::string& path) {
  const Node list = load_yaml(path);
  if (list.kind() != Node::Kind::kList) throw UserError(list.where(), "expected a list of names of GPUs");
  std::vector<KnownCard> cards;
  for (const Node& item : list.items()) {
    Section section(item, "names of GPUs");
    KnownCard card;
    card.names = section.texts("names");
    card.choose = section.texts("choose", {});
    card.like = section.optional_node("like");
    card.scope = section.text("scope", "");
    section.finish();
    const int answers = (card.choose.empty() ? 0 : 1) + (card.like ? 1 : 0) + (card.scope.empty() ? 0 : 1);
    if (answers != 1) throw UserError(item.where(), "names of GPUs: give one of choose, like and scope");
    cards.push_back(std::move(card));
  }
  return cards;
}

bool answers_to_pattern(const std::string& pattern, const std::string& loose) {
  return pattern.ends_with('*') ? loose.starts_with(loose_name(pattern.substr(0, pattern.size() - 1)))
                                : loose == loose_name(pattern);
}

// An exact name wins over a prefix.
std::optional<KnownCard> known_card(const std::string& name) {
  const std::string loose = loose_name(short_machine_name(name));
  std::optional<KnownCard> found;
  for (KnownCard& card : read_known_cards(find_config("cards", "machines", {}))) {
    for (const std::string& pattern : card.names) {
      if (!answers_to_pattern(pattern, loose)) continue;
      if (!pattern.ends_with('*')) return card;
      if (!found) found = card;
    }
  }
  return found;
}

}  // namespace

std::string short_machine_name(const std::string& name) {
  std::string text = name.substr(0, name.find(" (UUID"));
  if (text.starts_with("GPU ") && text.find(": ") != std::string::npos) text.erase(0, text.find(": ") + 2);
  for (bool more = true; more;) {
    more = false;
    for (const std::string word : {"nvidia", "tesla", "geforce", "quadro"}) {
      if (text.size() <= word.size() || loose_name(text.substr(0, word.size())) != word) continue;
      const std::size_t rest = text.find_first_not_of(" -_", word.size());
      if (rest == std::string::npos) continue;
      text.erase(0, rest);
      more = true;
    }
  }
  return text;
}

std::optional<Node> proposed_machine(const std::string& name) {
  const std::optional<KnownCard> card = known_card(name);
  return card ? card->like : std::nullopt;
}

std::string machine_advice(const std::string& name) {
  const std::optional<KnownCard> card = known_card(name);
  if (!card) return "";
  if (!card->choose.empty()) return fmt::format("which of {} is meant?", fmt::join(card->choose, ", "));
  if (card->like)
    return fmt::format("it has no profile; `hardware: {}` is the nearest machine", flow_text(*card->like));
  return fmt::format(
      "{}. A profile of one's own needs its data sheet and measured kernels "
      "(configs/README.md#add-a-gpu)",
      card->scope);
}

}  // namespace kvcast::config
