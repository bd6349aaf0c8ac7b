// A walk over the JSON value in its own order.
#include "store/flatten.hpp"

#include <array>

namespace kvcast::store {

namespace {

// The members that may name an entry of a list.
constexpr std::array<const char*, 3> kNames = {"owner", "kind", "what"};

const std::string* name_of(const nlohmann::json& entry, const char** member) {
  if (!entry.is_object()) return nullptr;
  for (const char* name : kNames) {
    const auto found = entry.find(name);
    if (found != entry.end() && found->is_string()) {
      *member = name;
      return found->get_ptr<const std::string*>();
    }
  }
  return nullptr;
}

void walk(const nlohmann::json& value, const std::string& path, std::vector<Column>& columns);

void walk_list(const nlohmann::json& list, const std::string& path, std::vector<Column>& columns) {
  if (list.size() == 2 && list[0].is_number() && list[1].is_number()) {
    columns.push_back({path + ".low", list[0]});
    columns.push_back({path + ".high", list[1]});
    return;
  }
  for (const nlohmann::json& entry : list) {
    const char* member = nullptr;
    const std::string* name = name_of(entry, &member);
    // A list without names throughout, such as a timeline that repeats its kinds by lane, is no set of columns.
    if (name == nullptr || entry.contains("lane")) return;
    for (const auto& [key, inner] : entry.items()) {
      if (key != member) walk(inner, path + "." + *name + "." + key, columns);
    }
  }
}

void walk(const nlohmann::json& value, const std::string& path, std::vector<Column>& columns) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) walk(inner, path.empty() ? key : path + "." + key, columns);
  } else if (value.is_array()) {
    walk_list(value, path, columns);
  } else {
    columns.push_back({path, value});
  }
}

}  // namespace

std::vector<Column> flatten(const nlohmann::json& value, const std::string& prefix) {
  std::vector<Column> columns;
  walk(value, prefix, columns);
  return columns;
}

}  // namespace kvcast::store
