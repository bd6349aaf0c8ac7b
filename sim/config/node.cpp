// The immutable tree behind parse_yaml: subtrees are shared, so that copies, aliases and `with` cost only what changes.

#include <algorithm>
#include <map>

#include "config/text.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

struct Node::Body {
  Kind kind = Kind::kNull;
  SourceLocation where;
  std::string text;
  bool quoted = false;
  std::vector<Node> items;
  std::vector<std::pair<std::string, Node>> entries;
  std::vector<SourceLocation> key_locations;  // of the entries
  std::size_t size = 1;
  std::size_t depth = 0;
};

Node::Node(Body body) : body_(std::make_shared<const Body>(std::move(body))) {}

const Node::Body& Node::body() const {
  static const Body null;
  return body_ ? *body_ : null;
}

Node Node::null(SourceLocation where) {
  Body body;
  body.where = std::move(where);
  return Node(std::move(body));
}

Node Node::scalar(std::string text, SourceLocation where, bool quoted) {
  Body body;
  body.kind = Kind::kScalar;
  body.where = std::move(where);
  body.text = std::move(text);
  body.quoted = quoted;
  return Node(std::move(body));
}

Node Node::list(std::vector<Node> items, SourceLocation where) {
  Body body;
  body.kind = Kind::kList;
  body.where = std::move(where);
  for (const Node& item : items) {
    body.size += item.size();
    body.depth = std::max(body.depth, item.depth());
  }
  ++body.depth;
  body.items = std::move(items);
  return Node(std::move(body));
}

Node Node::map(std::vector<std::pair<std::string, Node>> entries, SourceLocation where,
               std::vector<SourceLocation> key_locations) {
  Body body;
  for (std::size_t i = key_locations.size(); i < entries.size(); ++i)
    key_locations.push_back(entries[i].second.where());
  body.key_locations = std::move(key_locations);
  body.kind = Kind::kMap;
  body.where = std::move(where);
  for (const auto& [key, value] : entries) {
    body.size += value.size();
    body.depth = std::max(body.depth, value.depth());
  }
  ++body.depth;
  body.entries = std::move(entries);
  return Node(std::move(body));
}

Node::Kind Node::kind() const { return body().kind; }
const SourceLocation& Node::where() const { return body().where; }
const std::string& Node::text() const { return body().text; }
bool Node::quoted() const { return body().quoted; }
const std::vector<Node>& Node::items() const { return body().items; }
const std::vector<std::pair<std::string, Node>>& Node::entries() const { return body().entries; }
std::size_t Node::size() const { return body().size; }
std::size_t Node::depth() const { return body().depth; }

const Node* Node::find(std::string_view key) const {
  for (const auto& [name, value] : entries()) {
    if (name == key) return &value;
  }
  return nullptr;
}

SourceLocation Node::key_where(std::string_view key) const {
  for (std::size_t i = 0; i < entries().size(); ++i) {
    if (entries()[i].first == key) return body().key_locations[i];
  }
  return where();
}

Node Node::without(const std::vector<std::string_view>& keys) const {
  std::vector<std::pair<std::string, Node>> kept;
  std::vector<SourceLocation> locations;
  for (std::size_t i = 0; i < entries().size(); ++i) {
    if (std::ranges::find(keys, entries()[i].first) != keys.end()) continue;
    kept.push_back(entries()[i]);
    locations.push_back(body().key_locations[i]);
  }
  return map(std::move(kept), where(), std::move(locations));
}

namespace {

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> names;
  for (std::size_t start = 0;;) {
    const std::size_t dot = std::min(path.find('.', start), path.size());
    names.emplace_back(path.substr(start, dot - start));
    if (dot == path.size()) return names;
    start = dot + 1;
  }
}

// Returns the key under which the scalar at names[0 .. i) is stored in the map that it abbreviates; null if it
// abbreviates none.
const char* short_for(const std::vector<std::string>& names, std::size_t i) {
  if (i == 1 && (names[0] == "policy" || names[0] == "framework")) return "name";
  if (i == 1 && names[0] == "score") return "benchmark";
  if (i == 1 && names[0] == "model") return "like";
  if (names[0] != "hardware") return nullptr;
  if (i == 1) return "like";
  if (i == 2 && names[1] == "like") return "name";
  if (i == 2) return names[1] == "host" ? "like" : nullptr;
  return "value";
}

// Returns the entries of `node` as the map that a path runs through: names[0 .. i) lead to it.
std::vector<std::pair<std::string, Node>> entries_below(const Node& node, const std::vector<std::string>& names,
                                                        std::size_t i, const SourceLocation& asked_at) {
  if (node.kind() == Node::Kind::kMap) return node.entries();
  if (node.kind() == Node::Kind::kNull) return {};
  const char* const key = node.kind() == Node::Kind::kScalar && i > 0 ? short_for(names, i) : nullptr;
  if (key != nullptr) return {{key, node}};
  const std::string before = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<long>(i), "."));
  throw UserError(asked_at, fmt::format("cannot set \"{}\": {} is {}, not a map", fmt::join(names, "."),
                                        before.empty() ? "the config" : '"' + before + '"', describe(node)));
}

// Numbers, quantities and flags are written without quotes, so that 2 and "2" differ; everything else is a JSON string,
// so that no text can look like part of the surrounding tree.
bool stands_bare(const Node& scalar) {
  const std::string& text = scalar.text();
  if (scalar.quoted() || text.empty()) return false;
  if (text == "true" || text == "false") return true;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_plain = [&](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("+-./% ").find(c) != std::string_view::npos;
  };
  return (is_digit(text[0]) || text[0] == '-') && std::ranges::all_of(text, is_plain);
}

void write_canonical(const Node& node, bool sorts, std::string& out) {
  switch (node.kind()) {
    case Node::Kind::kNull:
      out += "null";
      return;
    case Node::Kind::kScalar:
      out += stands_bare(node) ? node.text() : json_string(node.text());
      return;
    case Node::Kind::kList: {
      const char* separator = "[";
      for (const Node& item : node.items()) {
        out += separator;
        write_canonical(item, sorts, out);
        separator = ",";
      }
      out += node.items().empty() ? "[]" : "]";
      return;
    }
    case Node::Kind::kMap: {
      std::vector<std::pair<std::string_view, const Node*>> entries;
      for (const auto& [key, value] : node.entries()) entries.emplace_back(key, &value);
      if (sorts) std::ranges::sort(entries);
      const char* separator = "{";
      for (const auto& [key, value] : entries) {
        out += separator;
        out += json_string(key) + ":";
        write_canonical(*value, sorts, out);
        separator = ",";
      }
      out += entries.empty() ? "{}" : "}";
      return;
    }
  }
}

}  // namespace

Node Node::with(std::string_view dotted_path, const Node& value) const {
  check_dotted_path(dotted_path, value.where());
  return put(split_path(dotted_path), 0, value);
}

// Returns this node with `value` at names[i ...]; names[0 .. i) lead here.
Node Node::put(const std::vector<std::string>& names, std::size_t i, const Node& value) const {
  if (i == names.size()) return value;
  std::vector<std::pair<std::string, Node>> changed = entries_below(*this, names, i, value.where());
  std::vector<SourceLocation> locations = body().key_locations;
  locations.resize(changed.size(), where());
  const auto entry = std::ranges::find_if(changed, [&](const auto& e) { return e.first == names[i]; });
  if (entry == changed.end()) {
    changed.emplace_back(names[i], Node().put(names, i + 1, value));
    locations.push_back(value.where());
  } else {
    entry->second = entry->second.put(names, i + 1, value);
    locations[static_cast<std::size_t>(entry - changed.begin())] = value.where();
  }
  return map(std::move(changed), where().file.empty() ? value.where() : where(), std::move(locations));
}

std::string Node::canonical() const {
  std::string out;
  write_canonical(*this, true, out);
  return out;
}

std::string Node::in_order() const {
  std::string out;
  write_canonical(*this, false, out);
  return out;
}

std::string flow_text(const Node& node) {
  if (node.kind() == Node::Kind::kScalar) return node.quoted() ? json_string(node.text()) : node.text();
  std::vector<std::string> parts;
  if (node.kind() == Node::Kind::kList) {
    for (const Node& item : node.items()) parts.push_back(flow_text(item));
    return fmt::format("[{}]", fmt::join(parts, ", "));
  }
  if (node.kind() == Node::Kind::kNull) return "null";
  for (const auto& [key, value] : node.entries()) parts.push_back(key + ": " + flow_text(value));
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

bool is_scalar(const Node* node) { return node != nullptr && node->kind() == Node::Kind::kScalar; }

std::string describe(const Node& node) {
  switch (node.kind()) {
    case Node::Kind::kNull:
      return "nothing";
    case Node::Kind::kList:
      return node.items().empty() ? "an empty list" : "a list";
    case Node::Kind::kMap:
      return node.entries().empty() ? "an empty map" : "a map";
    case Node::Kind::kScalar:
      break;
  }
  return fmt::format("{}\"{}\"", node.quoted() ? "the quoted text " : "", shorten(node.text()));
}

const Node* find_below(const Node& map, std::string_view dotted_path) {
  const Node* at = &map;
  for (const std::string& name : split_path(dotted_path)) at = at == nullptr ? nullptr : at->find(name);
  return at;
}

SourceLocation where_is(const Node& root, std::string_view dotted_path) {
  const Node* at = &root;
  for (const std::string& name : split_path(dotted_path)) {
    const Node* const below = at->find(name);
    if (below == nullptr) break;
    at = below;
  }
  return at->where();
}

void check_dotted_path(std::string_view path, const SourceLocation& where) {
  const auto is_name_char = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  constexpr std::size_t kMaxNames = 16;
  const std::vector<std::string> names = split_path(path);
  const bool well_formed = std::ranges::all_of(
      names, [&](const std::string& name) { return !name.empty() && std::ranges::all_of(name, is_name_char); });
  if (!well_formed || names.size() > kMaxNames) {
    throw UserError(where, fmt::format("\"{}\" is not a path of keys such as workload.batch", shorten(path)));
  }
}

}  // namespace kvcast::config
