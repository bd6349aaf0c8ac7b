#include "config/include.hpp"

#include <algorithm>

#include "config/find.hpp"
#include "config/section.hpp"
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

Node overlay(const Node& own, const Node& base, const std::vector<std::string>& sections) {
  std::vector<std::pair<std::string, Node>> entries = own.entries();
  std::vector<SourceLocation> locations;
  for (const auto& entry : entries) locations.push_back(own.key_where(entry.first));
  for (const auto& entry : base.entries()) {
    const auto& [key, value] = entry;
    const auto mine = std::ranges::find_if(entries, [&](const auto& e) { return e.first == entry.first; });
    if (mine == entries.end()) {
      entries.emplace_back(key, value);
      locations.push_back(base.key_where(key));
    } else if (std::ranges::find(sections, key) != sections.end() && mine->second.kind() == Node::Kind::kMap &&
               value.kind() == Node::Kind::kMap) {
      mine->second = overlay(mine->second, value, {});
    }
  }
  return Node::map(std::move(entries), own.where(), std::move(locations));
}

Node with_includes(const Node& map, const std::string& folder, const std::vector<std::string>& sections,
                   Sources& sources) {
  if (map.kind() != Node::Kind::kMap) return map;  // the reader rejects it, with its message
  const Node* list = map.find("include");
  if (list == nullptr) return map;
  Node result = map.without({"include"});
  if (list->kind() != Node::Kind::kList) throw UserError(list->where(), "include: expected a list of names");
  for (const Node& name : list->items()) {
    const Node base = sources.load(folder, read_text(name, "include"), name.where());
    if (base.kind() != Node::Kind::kMap) throw UserError(base.where(), "an included file must contain a map");
    if (const Node* nested = base.find("include")) {
      throw UserError(nested->where(), "an included file may not include others");
    }
    result = overlay(result, base, sections);
  }
  return result;
}

std::optional<LikeMachine> read_variation(const Node& map, Sources& sources) {
  if (map.kind() != Node::Kind::kMap || map.find("like") == nullptr) return {};
  const Node& written = *map.find("like");
  if (written.kind() != Node::Kind::kMap) {
    throw UserError(written.where(),
                    fmt::format("like: a profile takes a map such as {{name: h100-sxm, uncertainty: 15 %}}, found {}; "
                                "only the `hardware:` of a run takes `like: NAME`",
                                describe(written)));
  }
  Section section(written, "like");
  LikeMachine like;
  like.name = section.text("name");
  like.uncertainty = section.uncertainty();
  like.same_architecture = section.choice("architecture", {"same", "other"}, "same") == "same";
  section.finish();
  Node base = sources.load("hardware", like.name, section.where("name"));
  if (const Node* again = base.find("like")) {
    throw UserError(section.where("name"), fmt::format("like: {} is like another profile itself ({}:{}); name that one",
                                                       like.name, again->where().file, again->where().line));
  }
  base = with_includes(base, "hardware/common", {"gpu", "link"}, sources);
  like.own = map.without({"like"});
  like.whole = overlay(like.own, base.without({"title", "aliases", "calibration"}), {"gpu", "link"});
  return like;
}

}  // namespace kvcast::config
