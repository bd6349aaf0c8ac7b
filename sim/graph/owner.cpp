#include "graph/owner.hpp"

#include <algorithm>

namespace kvcast::graph {

const std::vector<std::string>& owner_names() {
#define KVCAST_OWNER_TEXT(id, text) text,
  static const std::vector<std::string> names = {KVCAST_OWNERS(KVCAST_OWNER_TEXT)};
#undef KVCAST_OWNER_TEXT
  return names;
}

std::string_view owner_name(Owner owner) { return owner_names()[static_cast<std::size_t>(owner)]; }

std::optional<Owner> find_owner(std::string_view name) {
  const auto at = std::ranges::find(owner_names(), name);
  if (at == owner_names().end()) return {};
  return static_cast<Owner>(at - owner_names().begin());
}

}  // namespace kvcast::graph
