// Strict YAML: nothing is guessed; anything else is a UserError with file:line:col.
//
// yaml-cpp parses; this layer rejects what it accepts: duplicate keys, several documents in a file, aliases that
// contain themselves or blow up, tags, keys that are not plain text.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace kvcast::config {

// An immutable YAML tree; copies are cheap and share it.
class Node {
 public:
  enum class Kind { kNull, kScalar, kList, kMap };

  Node() = default;  // null, at no known location
  static Node null(SourceLocation where);
  static Node scalar(std::string text, SourceLocation where, bool quoted = false);
  static Node list(std::vector<Node> items, SourceLocation where);
  // key_places, if given: the location of each key.
  static Node map(std::vector<std::pair<std::string, Node>> entries, SourceLocation where,
                  std::vector<SourceLocation> key_places = {});

  Kind kind() const;
  const SourceLocation& where() const;
  const std::string& text() const;  // for a scalar
  bool quoted() const;              // "2" and '2' are text, never numbers
  const std::vector<Node>& items() const;
  const std::vector<std::pair<std::string, Node>>& entries() const;
  const Node* find(std::string_view key) const;          // for a map; null if it has no such key
  SourceLocation key_where(std::string_view key) const;  // location of an existing key

  // Number of values in the tree, itself included, and levels of lists and maps; shared subtrees count each time they
  // occur.
  std::size_t size() const;
  std::size_t depth() const;

  // Returns whether the other node is a copy of this one, so that both share one tree.
  bool shares(const Node& other) const { return body_ == other.body_; }

  // Returns a copy of a map without these keys.
  Node without(const std::vector<std::string_view>& keys) const;

  // Returns a copy with the value at a dotted path inserted or replaced ("policy.budget"); maps are created on the way.
  // A scalar on the way that abbreviates a map becomes that map: `policy: NAME` is {name: NAME}, `model: NAME`,
  // `hardware: NAME` and `hardware.host: NAME` are {like: NAME}, `hardware.like: NAME` is {name: NAME}, and a number of
  // the machine
  // (`hardware.gpu.clock: x2`) is {value: x2}. Throws UserError if the path runs through a list or another scalar.
  Node with(std::string_view dotted_path, const Node& value) const;

  // Canonical text: keys sorted, no comments or locations. Equal trees give equal text; the key of experiments.
  std::string canonical() const;
  // The same with the keys in their order, which is that of the axes of a sweep.
  std::string in_order() const;

 private:
  struct Body;
  explicit Node(Body body);
  const Body& body() const;
  Node put(const std::vector<std::string>& names, std::size_t i, const Node& value) const;
  std::shared_ptr<const Body> body_;
};

// The value at a dotted path below a map; null if it is not there.
const Node* find_below(const Node& map, std::string_view dotted_path);
// The location of the value at a dotted path, or of the last map on the way that exists.
SourceLocation where_is(const Node& root, std::string_view dotted_path);
// A node as YAML on one line.
std::string flow_text(const Node& node);
// Returns whether there is a node, and it is a scalar.
bool is_scalar(const Node* node);
// Describes a node for messages: `a map`, `a list`, `"quest"`, `nothing`.
std::string describe(const Node& node);
// Throws UserError unless path is names joined by dots, a name consisting of letters, digits, '_' and '-'.
void check_dotted_path(std::string_view path, const SourceLocation& where);

inline constexpr std::size_t kMaxYamlBytes = 1u << 20;

// Throws UserError for anything that is not exactly one well-formed document of maps, lists and scalars. A plain
// integer followed by K or M is a count in units of 1024 or 1024²: 128K is read as 131072, except as a name or a
// description.
Node parse_yaml(std::string_view text, const std::string& file_name);
// The same for a client's text, whose locations read "request:3:5" and are marked as from a request: names in it are
// looked up among the listed files only (config/find.hpp).
Node parse_request(std::string_view text);
// The same for a file; throws UserError if it cannot be read. A file that has not changed since the last call is not
// parsed again.
Node load_yaml(const std::string& path);
// Parses "a.b=v" of --set: the path and the value (as YAML, so lists and maps work). UserError names the whole
// argument.
std::pair<std::string, Node> parse_setting(const std::string& argument);

}  // namespace kvcast::config
