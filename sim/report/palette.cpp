#include "report/palette.hpp"

#include "report/lookup.hpp"

namespace kvcast::report {

std::string Palette::cycle(const std::string& list, std::size_t nth) const {
  const nlohmann::json* colors = find_path(definition_, list);
  if (colors == nullptr || !colors->is_array() || colors->empty()) return "";
  return as_text((*colors)[nth % colors->size()]);
}

std::string Palette::color(const std::string& group, const std::string& name) {
  const nlohmann::json* own = find_path(definition_, group);
  if (own != nullptr && own->is_object() && own->contains(name)) return as_text((*own)[name]);
  std::map<std::string, std::string>& given = given_[group];
  const auto found = given.find(name);
  if (found != given.end()) return found->second;
  return given[name] = cycle("cycles." + group, given.size());
}

}  // namespace kvcast::report
