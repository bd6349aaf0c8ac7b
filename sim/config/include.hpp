// Merges the files that a profile refers to before any number is read, so that every number keeps the location at which
// it is written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/hardware.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

// The files from which an object was made, so that it is rebuilt only after one of them has changed.
class Sources {
 public:
  // load_yaml(path).
  Node load(const std::string& path);
  // load_yaml(find_config(folder, name, asked_at)).
  Node load(const std::string& folder, const std::string& name, const SourceLocation& asked_at);

  // Returns whether all loads would find the same files with the same content again.
  bool unchanged() const;

 private:
  bool is_unchanged() const;

  struct Loaded {
    std::string folder, name;  // as requested; empty for a path
    SourceLocation asked_at;
    std::string path;
    Node root;
  };
  std::vector<Loaded> loaded_;
};

// Merges `own` over `base`: its keys win; maps under the sections named are merged in turn.
Node overlay(const Node& own, const Node& base, const std::vector<std::string>& sections);

// Returns the map with its `include:` list merged in: keys of the map win over included ones, and earlier files of the
// list over later ones; maps under the sections named are merged key by key. Included files are names under `folder`,
// and include nothing themselves.
Node with_includes(const Node& map, const std::string& folder, const std::vector<std::string>& sections,
                   Sources& sources);

// `like: {name: h200, uncertainty: 15 %}` of a hypothetical machine; `architecture: other` if it is not of the same
// architecture.
struct LikeMachine {
  std::string name;        // the profile that the machine is like
  double uncertainty = 0;  // minimum uncertainty of each number that is taken over
  bool same_architecture = true;
  Node own;    // the map without `like`: the differences
  Node whole;  // merged over that profile; title, aliases and calibrations are of the map alone
};

// Throws UserError if the profile named has a `like` itself.
std::optional<LikeMachine> read_variation(const Node& map, Sources& sources);

// Marks a number as taken over from the machine `like`: established there, assumed here, with at least this
// uncertainty. Exact numbers stay as they are.
void assume(const Knob& knob, const std::string& like, double uncertainty);

}  // namespace kvcast::config
