// Settings under which every registered policy can run on small traces. They are derived from its declared parameters,
// so that a new policy is covered once it is registered.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "config/yaml.hpp"
#include "policy/policy.hpp"
#include "policy/profile.hpp"
#include "support/memory_trace.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

inline bool declares(const policy::Descriptor& d, const std::string& key) {
  for (const policy::Parameter& p : d.parameters) {
    if (p.key == key) return true;
  }
  return false;
}

// Profiles of made-up models in a separate directory, for policies that need offline scores of heads and layers.
class Profiles {
 public:
  // A file whose scores fit traces of this shape.
  std::string of(const TraceShape& shape) const {
    policy::Profile profile;
    profile.model = "test";
    profile.source = "random numbers";
    profile.n_layers = shape.n_layers;
    profile.n_q_heads = shape.kv_heads * shape.group;
    profile.n_kv_heads = shape.kv_heads;
    const Stream stream(5);
    std::uint64_t next = 0;
    for (int layer = 0; layer < shape.n_layers; ++layer) {
      profile.layer_errors[layer] = 0.1 + stream.uniform(next++);
      for (const std::string& kind : policy::head_score_kinds()) {
        for (int h = 0; h < profile.n_q_heads; ++h) profile.heads[kind][layer].push_back(stream.uniform(next++));
      }
    }
    const std::string path =
        directory_.path() + "/" + std::to_string(shape.kv_heads) + "x" + std::to_string(shape.group) + ".yaml";
    std::ofstream(path) << policy::write_profile(profile);
    return path;
  }

 private:
  TemporaryDirectory directory_;
};

// A map of settings as text, with one value set or replaced.
inline std::string with(const std::string& settings, const std::string& key, const std::string& value) {
  const config::Node changed =
      config::parse_yaml("{" + settings + "}", "test").with(key, config::Node::scalar(value, {}));
  std::string text;
  for (const auto& [k, v] : changed.entries()) {
    text +=
        (text.empty() ? "" : ", ") + k + ": " + (v.kind() == config::Node::Kind::kScalar ? v.text() : v.canonical());
  }
  return text;
}

// Small pages, windows and kernels, so that short traces exercise them. A policy with defaults for long prompts gets
// small numbers, and one whose threshold would keep everything here gets a stricter one.
inline std::string small_settings(const policy::Descriptor& d, std::int64_t budget, const std::string& profile) {
  std::string text;
  for (const policy::Parameter& p : d.parameters) {
    const auto* const whole = std::get_if<std::int64_t>(&p.fallback);
    if (p.key == "budget" && whole != nullptr) text = with(text, p.key, std::to_string(budget));
    if (p.key != "budget" && whole != nullptr && *whole > 40) text = with(text, p.key, "8");
    if (p.key == "page" || p.key == "window") text = with(text, p.key, "4");
    if (p.key == "pool_kernel") text = with(text, p.key, "5");
    if (p.key == "topk") text = with(text, p.key, "3");
    if (p.key == "retrieval_heads") text = with(text, p.key, "1");
    if (p.key == "sink") text = with(text, p.key, "2");
    if (p.key == "recall" && std::holds_alternative<double>(p.fallback)) text = with(text, p.key, "0.9");
    if (p.key == "alpha") text = with(text, p.key, "0.2");
    if (p.key == "filter_layers") text = with(text, p.key, "1");
    if (p.key == "wait_layers") text = with(text, p.key, "0");
    if (p.key == "lag") text = with(text, p.key, "2");
    if (p.key == "channels") text = with(text, p.key, "3");
    if (p.key == "cluster_tokens" || p.key == "kernel") text = with(text, p.key, "4");
    if (p.key == "stride" || p.key == "index_share") text = with(text, p.key, "2");
    if (p.key == "chunk" && *whole < 40) text = with(text, p.key, "3");
    if (p.key == "query_cosine") text = with(text, p.key, "0.9");
    if (p.key == "passage") text = with(text, p.key, "2");
    if (p.key == "passage_similarity") text = with(text, p.key, "0.1");
    if (p.key == "profile") text = with(text, p.key, profile);
  }
  return text;
}

inline bool has_budget(const std::string& settings) { return settings.find("budget: ") != std::string::npos; }

// The small settings, and every value of every parameter that names its values.
inline std::vector<std::string> settings_of(const policy::Descriptor& d, std::int64_t budget,
                                            const std::string& profile) {
  const std::string base = small_settings(d, budget, profile);
  std::vector<std::string> all = {base};
  for (const policy::Parameter& p : d.parameters) {
    if (p.key == "budget_convention" || p.key == "profile") continue;  // the one that changes what the budget counts
    std::vector<std::string> values = p.names;
    if (std::holds_alternative<bool>(p.fallback)) values = {"true", "false"};
    for (const std::string& value : values) {
      if (value.front() == '<') continue;
      const bool evicts = p.key == "budget_grows" && declares(d, "decode_eviction");
      all.push_back(with(evicts ? with(base, "decode_eviction", "true") : base, p.key, value));
    }
  }
  if (declares(d, "share")) all.push_back("share: 0.5");
  return all;
}

}  // namespace kvcast::tests
