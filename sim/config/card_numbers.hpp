// The numbers of a published config.json under the names of configs/cards/architectures.yaml, as the parts of a reader
// share them (config/card.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "config/yaml.hpp"

namespace kvcast::config {

inline constexpr std::int64_t kLargest = 1'000'000'000;  // number in a card

class CardNumbers {
 public:
  virtual ~CardNumbers() = default;
  // The value of a number of the model: the first of its names that the file has, then a default; nullptr: neither.
  virtual const Node* find(std::string_view number) = 0;
  virtual const std::string& architecture() const = 0;
  // Throws UserError, which names the architecture.
  [[noreturn]] void refuse(const SourceLocation& where, const std::string& why) const;

  // A whole number; a list of equal ones, one a layer, counts as one.
  std::int64_t integer(std::string_view number, std::int64_t low, std::int64_t high, std::int64_t fallback = 0);
};

Node number_node(std::int64_t number, const SourceLocation& where);

// Add to a model what the card says of its networks and experts, and of attention to compressed entries.
Node with_networks(Node model, CardNumbers& numbers, std::int64_t layers);
Node with_compressed(Node model, CardNumbers& numbers, std::int64_t layers);

}  // namespace kvcast::config
