// A sweep is a product of axes; an axis is a list of alternatives; an alternative is a list of settings (dotted path,
// value). Lists, `zip:` and `cases:` only differ in how they write an axis down.

#include <algorithm>
#include <set>

#include "base/hash.hpp"
#include "config/sweep.hpp"

namespace kvcast::config {
namespace {

using Setting = SweepSetting;
using Alternative = SweepAlternative;
using Axis = SweepAxis;

std::string join_path(const std::string& prefix, const std::string& key) {
  return prefix.empty() ? key : prefix + "." + key;
}

// Returns whether a map under this path replaces the existing value rather than changing it.
bool replaces(const std::string& path, const Node& map) {
  if (path == "policy") return map.find("name") != nullptr || map.find("file") != nullptr;
  if (path == "model" && map.find("config") != nullptr) return true;
  if (path == "model" || path == "hardware" || path == "hardware.host") return map.find("like") != nullptr;
  return path == "trace" && map.find("file") != nullptr;
}

// Returns one spelling for a key that can be written in several ways: short forms and the maps that they abbreviate.
std::string plain_key(const std::string& path) {
  if (path == "policy") return "policy.name";
  if (path == "hardware.like" || path == "hardware.like.name") return "hardware";
  if (path == "model.like") return "model";
  if (path == "hardware.host.like") return "hardware.host";
  const bool is_value = path.starts_with("hardware.") && path.ends_with(".value");
  return is_value ? path.substr(0, path.rfind('.')) : path;
}

// Converts a value to settings: a map that does not replace sets each of its keys.
void add_settings(const std::string& path, const Node& value, Alternative& out) {
  const bool whole = value.kind() != Node::Kind::kMap || replaces(path, value);
  if (whole) {
    check_dotted_path(path, value.where());
    out.push_back({path, value});
    return;
  }
  if (value.entries().empty()) throw UserError(value.where(), "sweep: an empty map sets nothing");
  for (const auto& [key, below] : value.entries()) add_settings(join_path(path, key), below, out);
}

// Appends the leaves of a setting as (dotted key, text).
void add_leaves(const std::string& path, const Node& value, std::vector<std::pair<std::string, std::string>>& out) {
  if (value.kind() == Node::Kind::kMap) {
    for (const auto& [key, below] : value.entries()) add_leaves(join_path(path, key), below, out);
  } else if (value.kind() == Node::Kind::kScalar) {
    out.emplace_back(plain_key(path), value.text());
  } else {
    out.emplace_back(path, value.canonical());
  }
}

std::vector<std::pair<std::string, std::string>> leaves_of(const Alternative& alternative) {
  std::vector<std::pair<std::string, std::string>> leaves;
  for (const Setting& setting : alternative) add_leaves(setting.path, setting.value, leaves);
  return leaves;
}

Axis axis_of_list(const std::string& path, const Node& list) {
  if (list.items().empty()) throw UserError(list.where(), fmt::format("sweep: \"{}\" is an empty list", path));
  Axis axis;
  for (const Node& item : list.items()) add_settings(path, item, axis.emplace_back());
  return axis;
}

void refuse_too_many(std::size_t points, const SourceLocation& where) {
  const std::size_t most = where.from_request ? kMostPointsOfRequest : kMostPoints;
  if (points <= most) return;
  throw UserError(where,
                  where.from_request
                      ? fmt::format("sweep: more than the {} points of a request; `kvcast sweep` runs more", most)
                      : fmt::format("sweep: more than {} points", most));
}

std::size_t count_points(const std::vector<Axis>& axes, const SourceLocation& where) {
  std::size_t points = 1;
  for (const Axis& axis : axes) {
    points *= axis.size();  // below kMostPoints times the values of a file: no overflow
    refuse_too_many(points, where);
  }
  return points;
}

void refuse_common_keys(const std::vector<Axis>& axes, const SourceLocation& where) {
  std::set<std::string> taken;
  for (const Axis& axis : axes) {
    std::set<std::string> keys;
    for (const Alternative& alternative : axis) {
      for (const auto& leaf : leaves_of(alternative)) keys.insert(leaf.first);
    }
    for (const std::string& key : keys) {
      if (!taken.insert(key).second) throw UserError(where, fmt::format("sweep: two axes set \"{}\"", key));
    }
  }
}

// A floor changes no result, so that points which differ in it alone would be one experiment, and conclusions use the
// floor of the run around the sweep.
void refuse_floors(const std::vector<Axis>& axes) {
  for (const Axis& axis : axes) {
    for (const Alternative& alternative : axis) {
      for (const Setting& setting : alternative) {
        if (setting.path != "score.floor") continue;
        throw UserError(setting.value.where(),
                        "score.floor affects conclusions, not results, and cannot vary between experiments: give it in "
                        "the run itself (`score: {floor: 90 %}`), or ask `kvcast plan` with a target on `score`");
      }
    }
  }
}

// Returns one combination of `points`, the first axis slowest.
Alternative combination(const std::vector<Axis>& axes, std::size_t points, std::size_t point) {
  Alternative alternative;
  std::size_t repeats = points;
  for (const Axis& axis : axes) {
    repeats /= axis.size();
    const Alternative& chosen = axis[point / repeats % axis.size()];
    alternative.insert(alternative.end(), chosen.begin(), chosen.end());
  }
  return alternative;
}

// Returns all combinations. Throws UserError if two axes set the same key, or there are too many.
Axis product(const std::vector<Axis>& axes, const SourceLocation& where) {
  const std::size_t points = count_points(axes, where);
  refuse_common_keys(axes, where);
  Axis combined;
  combined.reserve(points);
  for (std::size_t point = 0; point < points; ++point) combined.push_back(combination(axes, points, point));
  return combined;
}

// Collects the lists of a `zip:` map with their dotted paths.
void collect_lists(const std::string& prefix, const Node& map, std::vector<std::pair<std::string, Node>>& out) {
  for (const auto& [key, value] : map.entries()) {
    const std::string path = join_path(prefix, key);
    if (value.kind() == Node::Kind::kMap) {
      collect_lists(path, value, out);
    } else if (value.kind() == Node::Kind::kList) {
      out.emplace_back(path, value);
    } else {
      throw UserError(value.where(), fmt::format("sweep: zip: \"{}\" must be a list, found {}", path, describe(value)));
    }
  }
}

Axis axis_of_zipped_lists(const Node& zip) {
  std::vector<std::pair<std::string, Node>> lists;
  collect_lists("", zip, lists);
  if (lists.empty()) throw UserError(zip.where(), "sweep: zip: no lists");
  Axis axis(lists.front().second.items().size());
  for (const auto& [path, list] : lists) {
    const Axis single = axis_of_list(path, list);
    if (single.size() != axis.size()) {
      throw UserError(list.where(),
                      fmt::format("sweep: zip: \"{}\" has {} value{}, but \"{}\" has {}", path, single.size(),
                                  single.size() == 1 ? "" : "s", lists.front().first, axis.size()));
    }
    for (std::size_t i = 0; i < axis.size(); ++i) axis[i].insert(axis[i].end(), single[i].begin(), single[i].end());
  }
  return axis;
}

void refuse_lists(const Node& node) {
  if (node.kind() == Node::Kind::kList) {
    throw UserError(node.where(), "sweep: zip: in a list of maps, each map must have single values");
  }
  for (const auto& [key, value] : node.entries()) refuse_lists(value);
}

Axis axis_of_zip(const Node& zip) {
  if (zip.kind() == Node::Kind::kMap) return axis_of_zipped_lists(zip);
  if (zip.kind() != Node::Kind::kList || zip.items().empty()) {
    throw UserError(zip.where(), "sweep: zip: expected a list of maps, or a map of lists, found " + describe(zip));
  }
  Axis axis;
  for (const Node& item : zip.items()) {
    if (item.kind() != Node::Kind::kMap) {
      throw UserError(item.where(), "sweep: zip: expected a map, found " + describe(item));
    }
    refuse_lists(item);
    add_settings("", item, axis.emplace_back());
  }
  return axis;
}

// Permission of single values next to lists: granted in a case, but not in the sweep itself, where they would
// not be an axis.
enum class Singles { kAllowed, kRefused };

void add_axes(const std::string& prefix, const Node& map, Singles singles, std::vector<Axis>& axes);

Axis axis_of_cases(const Node& cases) {
  if (cases.kind() != Node::Kind::kList || cases.items().empty()) {
    throw UserError(cases.where(), "sweep: cases: expected a list of maps, found " + describe(cases));
  }
  std::vector<std::vector<Axis>> sweeps;
  std::size_t points = 0;
  for (const Node& item : cases.items()) {
    if (item.kind() != Node::Kind::kMap || item.entries().empty()) {
      throw UserError(item.where(), "sweep: cases: expected a map, found " + describe(item));
    }
    add_axes("", item, Singles::kAllowed, sweeps.emplace_back());
    points += count_points(sweeps.back(), item.where());
    refuse_too_many(points, cases.where());
  }
  Axis axis;
  axis.reserve(points);
  for (std::size_t i = 0; i < sweeps.size(); ++i) {
    for (Alternative& alternative : product(sweeps[i], cases.items()[i].where()))
      axis.push_back(std::move(alternative));
  }
  return axis;
}

// Returns the map without its lists, which become axes.
Node split_lists(const std::string& path, const Node& map, std::vector<Axis>& lists) {
  std::vector<std::pair<std::string, Node>> fixed;
  for (const auto& [key, value] : map.entries()) {
    const std::string below = join_path(path, key);
    if (value.kind() == Node::Kind::kList) {
      lists.push_back(axis_of_list(below, value));
    } else if (value.kind() == Node::Kind::kMap && path.starts_with("hardware")) {
      const Node rest = split_lists(below, value, lists);
      if (!rest.entries().empty()) fixed.emplace_back(key, rest);
    } else {
      fixed.emplace_back(key, value);
    }
  }
  return Node::map(std::move(fixed), map.where());
}

// `{name: quest, budget: [256, 512]}` under `policy`: the map without its lists replaces the existing value, the lists
// are axes.
void add_replacing_axes(const std::string& path, const Node& map, std::vector<Axis>& axes) {
  std::vector<Axis> lists;
  const Node fixed = split_lists(path, map, lists);
  axes.push_back({{{path, fixed}}});
  axes.insert(axes.end(), lists.begin(), lists.end());
}

void add_axes(const std::string& prefix, const Node& map, Singles singles, std::vector<Axis>& axes) {
  for (const auto& [key, value] : map.entries()) {
    const std::string path = join_path(prefix, key);
    if (path == "zip") {
      axes.push_back(axis_of_zip(value));
    } else if (path == "cases") {
      axes.push_back(axis_of_cases(value));
    } else if (value.kind() == Node::Kind::kList) {
      axes.push_back(axis_of_list(path, value));
    } else if (value.kind() == Node::Kind::kMap && replaces(path, value) && singles == Singles::kAllowed) {
      add_replacing_axes(path, value, axes);
    } else if (value.kind() == Node::Kind::kMap && !value.entries().empty()) {
      add_axes(path, value, singles, axes);
    } else if (singles == Singles::kAllowed) {
      Axis single(1);
      add_settings(path, value, single.front());
      axes.push_back(std::move(single));
    } else {
      throw UserError(
          value.where(),
          fmt::format(
              "sweep: \"{}\" must be a list of values, found {}; keys that do not vary belong outside of `sweep:`",
              path, describe(value)));
    }
  }
}

SweepPoint apply(const Node& base, Alternative settings) {
  SweepPoint point{base, leaves_of(settings)};
  // A whole policy or machine is set before its numbers, however the sweep orders them.
  const auto depth = [](const Setting& s) { return std::ranges::count(s.path, '.'); };
  std::ranges::stable_sort(settings, [&](const Setting& a, const Setting& b) { return depth(a) < depth(b); });
  for (const Setting& setting : settings) point.config = point.config.with(setting.path, setting.value);
  return point;
}

}  // namespace

SweepGrid::SweepGrid(const Node& config, const Cancel& cancel) : base_(config.without({"sweep"})) {
  const Node* sweep = config.find("sweep");
  if (sweep == nullptr) {
    base_ = config;
    return;
  }
  if (sweep->kind() != Node::Kind::kMap || sweep->entries().empty()) {
    throw UserError(sweep->where(), "sweep: expected a map of keys to lists, found " + describe(*sweep));
  }
  const SourceLocation where = config.key_where("sweep");
  add_axes("", *sweep, Singles::kRefused, axes_);
  size_ = count_points(axes_, where);
  refuse_common_keys(axes_, where);
  refuse_floors(axes_);
  refuse_duplicates(where, cancel);
}

SweepPoint SweepGrid::point(std::size_t i) const { return apply(base_, combination(axes_, size_, i)); }

void SweepGrid::refuse_duplicates(const SourceLocation& where, const Cancel& cancel) const {
  std::vector<std::pair<std::string, std::size_t>> hashes;
  hashes.reserve(size_);
  for (std::size_t i = 0; i < size_; ++i) {
    cancel.check();
    hashes.emplace_back(content_hash(point(i).config.canonical()), i);
  }
  std::ranges::sort(hashes);
  std::pair<std::size_t, std::size_t> first = {size_, size_};  // the point that repeats an earlier one, and that one
  for (std::size_t i = 1; i < size_; ++i) {
    if (hashes[i].first == hashes[i - 1].first) first = std::min(first, {hashes[i].second, hashes[i - 1].second});
  }
  if (first.first == size_) return;
  const auto name = [&](std::size_t i) {
    std::vector<std::string> values;
    for (const auto& [key, value] : point(i).values) values.push_back(key + "=" + value);
    return fmt::format("point {} ({})", i + 1, fmt::join(values, ", "));
  };
  throw UserError(where, fmt::format("sweep: {} is the same as {}", name(first.first), name(first.second)));
}

std::vector<SweepPoint> expand_sweep(const Node& config) {
  const SweepGrid grid(config);
  std::vector<SweepPoint> points;
  points.reserve(grid.size());
  for (std::size_t i = 0; i < grid.size(); ++i) points.push_back(grid.point(i));
  return points;
}

}  // namespace kvcast::config
