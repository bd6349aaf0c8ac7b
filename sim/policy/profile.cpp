#include "policy/profile.hpp"
#include "policy/fields.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/error.hpp"
#include "config/find.hpp"
#include "config/section.hpp"

namespace kvcast::policy {
namespace {

constexpr const char* kFormat = "kvcast-profile/1";

// The entry of the nearest layer; the lower one of two equally near.
template <typename Value>
const Value& nearest(const std::map<int, Value>& layers, int layer) {
  KVCAST_CHECK(!layers.empty());
  auto above = layers.lower_bound(layer);
  if (above == layers.end()) return std::prev(above)->second;
  if (above == layers.begin() || above->first == layer) return above->second;
  const auto below = std::prev(above);
  return layer - below->first <= above->first - layer ? below->second : above->second;
}

// Reads items that are maps with `layer`, each layer once.
template <typename Read>
void read_layers(const config::Node& list, int n_layers, const std::string& title, const Read& read) {
  if (list.kind() != config::Node::Kind::kList || list.items().empty()) {
    throw UserError(list.where(), fmt::format("{}: expected a list with one entry per layer", title));
  }
  std::vector<bool> seen(static_cast<std::size_t>(n_layers), false);
  for (const config::Node& item : list.items()) {
    config::Section entry(item, title);
    const auto layer = static_cast<int>(entry.integer("layer", 0, n_layers - 1));
    if (seen[static_cast<std::size_t>(layer)]) {
      throw UserError(entry.where("layer"), fmt::format("{}: layer {} occurs twice", title, layer));
    }
    seen[static_cast<std::size_t>(layer)] = true;
    read(layer, entry);
    entry.finish();
  }
}

void check_some(const std::vector<double>& scores, const SourceLocation& where, const std::string& title) {
  if (std::any_of(scores.begin(), scores.end(), [](double x) { return x > 0; })) return;
  throw UserError(where, fmt::format("{}: all scores are zero", title));
}

void read_heads(const config::Node& node, Profile& profile) {
  config::Section kinds(node, "head scores");
  for (const std::string& kind : head_score_kinds()) {
    const auto list = kinds.optional_node(kind);
    if (!list) continue;
    std::vector<double> all;
    read_layers(*list, profile.n_layers, kind, [&](int layer, config::Section& entry) {
      std::vector<double> scores = entry.numbers("scores", 0, 1e12);
      if (scores.size() != static_cast<std::size_t>(profile.n_q_heads)) {
        throw UserError(entry.where("scores"),
                        fmt::format("{}: {} scores for {} query heads", kind, scores.size(), profile.n_q_heads));
      }
      all.insert(all.end(), scores.begin(), scores.end());
      profile.heads[kind][layer] = std::move(scores);
    });
    check_some(all, list->where(), kind);
  }
  kinds.finish();
}

}  // namespace

const std::vector<std::string>& head_score_kinds() {
  static const std::vector<std::string> kinds = {"semantic", "retrieval", "echo", "induction"};
  return kinds;
}

void Profile::check_shape(const trace::TraceInfo& info) const {
  if (info.n_layers == n_layers && info.n_q_heads == n_q_heads && info.n_kv_heads == n_kv_heads) return;
  throw UserError(
      fmt::format("{}: the profile is of a model with {} layers, {} query and {} KV heads; the trace has {}, {} and {}",
                  path, n_layers, n_q_heads, n_kv_heads, info.n_layers, info.n_q_heads, info.n_kv_heads));
}

const std::vector<double>& Profile::head_scores(const std::string& kind, int layer) const {
  return nearest(heads.at(kind), layer);
}

std::vector<double> Profile::layer_shares() const {
  std::vector<double> shares;
  for (int layer = 0; layer < n_layers; ++layer) shares.push_back(nearest(layer_errors, layer));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& x : shares) x /= sum;
  return shares;
}

Profile read_profile(const std::string& path) {
  config::Section section(config::load_yaml(path), "profile");
  Profile profile;
  profile.path = path;
  section.choice("format", {kFormat});
  profile.model = section.text("model", "");
  profile.source = section.text("source", "");
  profile.n_layers = section.count("n_layers", 1, 10000);
  profile.n_q_heads = section.count("n_q_heads", 1, 10000);
  profile.n_kv_heads = section.count("n_kv_heads", 1, 10000);
  if (profile.n_q_heads % profile.n_kv_heads != 0) {
    throw UserError(section.where("n_kv_heads"), fmt::format("{} query heads do not divide into {} KV heads",
                                                             profile.n_q_heads, profile.n_kv_heads));
  }
  if (const auto heads = section.optional_node("head_scores")) read_heads(*heads, profile);
  if (const auto errors = section.optional_node("layer_errors")) {
    std::vector<double> all;
    read_layers(*errors, profile.n_layers, "layer_errors", [&](int layer, config::Section& entry) {
      all.push_back(profile.layer_errors[layer] = entry.number("error", 0, 1e12));
    });
    check_some(all, errors->where(), "layer_errors");
  }
  section.finish();
  return profile;
}

std::string write_profile(const Profile& profile) {
  std::string out = fmt::format("format: {}\n", kFormat);
  const auto quoted = [](const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') result += '\\';
      result += c == '\n' ? ' ' : c;
    }
    return result + "\"";
  };
  if (!profile.model.empty()) out += fmt::format("model: {}\n", quoted(profile.model));
  if (!profile.source.empty()) out += fmt::format("source: {}\n", quoted(profile.source));
  out += fmt::format("n_layers: {}\nn_q_heads: {}\nn_kv_heads: {}\n", profile.n_layers, profile.n_q_heads,
                     profile.n_kv_heads);
  if (!profile.heads.empty()) out += "head_scores:\n";
  for (const auto& [kind, layers] : profile.heads) {
    out += fmt::format("  {}:\n", kind);
    for (const auto& [layer, scores] : layers) {
      out += fmt::format("    - {{layer: {}, scores: [{:.9g}]}}\n", layer, fmt::join(scores, ", "));
    }
  }
  if (!profile.layer_errors.empty()) out += "layer_errors:\n";
  for (const auto& [layer, error] : profile.layer_errors) {
    out += fmt::format("  - {{layer: {}, error: {:.9g}}}\n", layer, error);
  }
  return out;
}

Parameter profile_parameter(const std::string& needed_for) {
  return {.key = kProfileKey,
          .fallback = std::string("none"),
          .unit = "",
          .meaning = "file of `kvcast profile` (a name under configs/profiles or a path): " + needed_for,
          .names = {"none", "<path>"}};
}

std::shared_ptr<const Profile> load_profile(const ParameterValues& values, const std::vector<std::string>& kinds) {
  const std::string& name = values.text("profile");
  const SourceLocation where = values.where("profile");
  if (!values.profile() && name == "none") {
    throw UserError(where,
                    fmt::format("{} needs a profile of the model with {}: give its name under "
                                "configs/profiles or its file as `profile`; `kvcast profile` makes one from a trace",
                                values.policy(), fmt::join(kinds, " and ")));
  }
  const auto profile =
      values.profile() ? values.profile()
                       : std::make_shared<const Profile>(read_profile(config::find_config("profiles", name, where)));
  for (const std::string& kind : kinds) {
    if (kind == "layer_errors" ? profile->layer_errors.empty() : !profile->heads.contains(kind)) {
      throw UserError(where, fmt::format("{}: the profile {} has no {}", values.policy(), profile->path, kind));
    }
  }
  return profile;
}

}  // namespace kvcast::policy
