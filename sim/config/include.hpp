// What a profile takes from other files, before any of it is read: every number keeps the place where it is written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/hardware.hpp"
#include "config/sources.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

// The map with its `include:` list worked in: what stands in the map wins over what is included, and earlier files of
// the list over later ones; maps under the sections named are laid over each other key by key. Included files are names
// under `folder`, and include nothing themselves.
Node with_includes(const Node& map, const std::string& folder, const std::vector<std::string>& sections,
                   Sources& sources);

// `like: {name: h200, uncertainty: 15 %}` of a machine that nobody has; `architecture: other` where it is not of the
// same architecture.
struct Likeness {
  std::string name;        // the profile that the machine is like
  double uncertainty = 0;  // of each number that is taken over, at the least
  bool same_architecture = true;
  Node own;    // the map without `like`: what is not as there
  Node whole;  // laid over that profile; title, aliases and calibrations are of the map alone
};

// UserError where the profile named is like another one itself.
std::optional<Likeness> likeness(const Node& map, Sources& sources);

// Makes a number one that is taken over from the machine `like`: established there, assumed here, and uncertain by as
// much at the least. Exact numbers stay as they are.
void assume(const Knob& knob, const std::string& like, double uncertainty);

}  // namespace kvcast::config
