#include "policy/category.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace kvcast::policy {
namespace {

// In the order of the enumeration.
constexpr std::string_view kCategories[] = {"none",
                                            "drop",
                                            "drop and retrieval (GPU)",
                                            "retrieval (GPU)",
                                            "retrieval (host)",
                                            "retrieval (CPU)",
                                            "retrieval (oracle)",
                                            "quantisation",
                                            "sparse prefill",
                                            "recorded"};

}  // namespace

const char* name(Category category) { return kCategories[static_cast<std::size_t>(category)].data(); }

std::optional<Category> find_category(std::string_view name) {
  const auto* const at = std::ranges::find(kCategories, name);
  if (at == std::end(kCategories)) return {};
  return static_cast<Category>(at - kCategories);
}

}  // namespace kvcast::policy
