// Kinds of policies.
#pragma once

#include <optional>
#include <string_view>

namespace kvcast::policy {

// Kinds of policies. A selection that cannot be computed in practice is an oracle: a yardstick.
enum class Category {
  kNone,
  kDrop,
  kDropAndRetrieval,
  kGpuRetrieval,
  kHostRetrieval,
  kCpuRetrieval,
  kOracle,
  kQuantisation,
  kSparsePrefill,
  kRecorded
};
// "none", "drop", "retrieval (GPU)", ...
const char* name(Category category);
std::optional<Category> find_category(std::string_view name);

}  // namespace kvcast::policy
