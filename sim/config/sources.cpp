#include "config/sources.hpp"

#include <algorithm>

#include "config/find.hpp"
#include "config/steady.hpp"

namespace kvcast::config {

Node Sources::load(const std::string& path) {
  return loaded_.emplace_back(Loaded{"", "", {}, path, load_yaml(path)}).root;
}

Node Sources::load(const std::string& folder, const std::string& name, const SourceLocation& asked_at) {
  const std::string path = find_config(folder, name, asked_at);
  return loaded_.emplace_back(Loaded{folder, name, asked_at, path, load_yaml(path)}).root;
}

bool Sources::unchanged() const {
  FoundFiles* const found = SteadyFiles::found();
  if (found == nullptr) return is_unchanged();
  const auto [known, fresh] = found->unchanged.try_emplace(this, false);
  if (fresh) known->second = is_unchanged();
  return known->second;
}

bool Sources::is_unchanged() const {
  try {
    return std::ranges::all_of(loaded_, [](const Loaded& file) {
      const bool moved = !file.folder.empty() && find_config(file.folder, file.name, file.asked_at) != file.path;
      return !moved && load_yaml(file.path).shares(file.root);
    });
  } catch (const UserError&) {  // a missing or broken file is reported by reading it again
    return false;
  }
}

}  // namespace kvcast::config
