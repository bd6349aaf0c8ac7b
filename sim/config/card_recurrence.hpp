// Layers without attention in published config.json files: which of them have a recurrence, and its sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "config/yaml.hpp"

namespace kvcast::config {

// Finds the value of a number of the model in the file; null if it has none.
using FindNumber = std::function<const Node*(std::string_view number)>;

// Returns the model with its recurrence of this kind (a choice of `recurrence.kind`) and the layers that attend. Throws
// UserError for lists of layers that are no such list, and for sizes that are missing.
Node with_recurrence(Node model, const std::string& kind, std::int64_t layers, const FindNumber& find);

}  // namespace kvcast::config
