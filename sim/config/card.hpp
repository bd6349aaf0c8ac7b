// Published config.json of a model as Hugging Face's repositories have it, read as the keys of a model of kvcast
// (configs/README.md). configs/cards/architectures.yaml says what its keys mean and which architectures are modelled.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/yaml.hpp"

namespace kvcast::config {

struct Card {
  Node model;                      // keys as in configs/models; numbers keep their locations in config.json
  std::vector<std::string> notes;  // keys that are not known, and what was read otherwise than written
};

// Returns the file if the name is that of a JSON file or of a folder with a config.json; from a request, nothing is.
std::optional<std::string> card_at(const std::string& name, const SourceLocation& asked_at);

// The name of a card: its file's, or for config.json that of its folder or of the repository in a cache of downloads.
std::string card_name(const std::string& path);

// Reads config.json, the `text_config` of a multimodal model, and hf_quant_config.json in the same folder. Throws
// UserError for an architecture that is not known or not modelled, missing numbers, patterns of layers that a model of
// kvcast cannot have, and unknown quantizations.
Card read_card(const std::string& path);

// The notes of the card that a run's `model:` names; none if it names none.
std::vector<std::string> card_notes(const Node& choice);

}  // namespace kvcast::config
