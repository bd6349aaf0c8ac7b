// The table of published configuration files: configs/cards/architectures.yaml.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "config/yaml.hpp"

namespace kvcast::config {

using KeyNames = std::map<std::string, std::vector<std::string>, std::less<>>;

struct Architecture {
  Node defaults;                     // values of keys that a file may leave out
  KeyNames also;                     // further names of keys, which mean something else elsewhere
  std::vector<std::string> ignored;  // keys without effect on cost and memory; * is any beginning or end
  bool scaled_context = false;       // max_position_embeddings includes the factor of linearly scaled positions
  std::string left_out;              // weights that are not counted; empty: none
  std::string recurrence;            // kind of the layers without attention; empty: there are none
  std::map<std::string, std::string, std::less<>> missing_with;  // keys that mean something not modelled, and what
  std::string missing;                                           // why it is not modelled; empty: it is
};

struct CardTable {
  KeyNames keys;        // number of a model ("experts.count") → names in files, the first that a file has counts
  KeyNames precisions;  // precision → names of quantizations
  std::vector<std::string> ignored;
  std::map<std::string, Architecture> architectures;  // by each of its names

  std::vector<std::string> modelled() const;  // names of architectures as files write them in `architectures`
};

// Throws UserError for unknown or missing keys, and for an architecture that is listed twice.
CardTable read_card_table(const std::string& path);

// Returns whether a pattern of `ignored` covers the key.
bool covers(const std::vector<std::string>& patterns, std::string_view key);

}  // namespace kvcast::config
