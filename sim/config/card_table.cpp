#include "config/card_table.hpp"

#include <algorithm>
#include <set>

#include "config/precision.hpp"
#include "config/section.hpp"

namespace kvcast::config {
namespace {

// The numbers of a model that files state.
constexpr const char* kNumbers[] = {"layers",
                                    "hidden",
                                    "n_q_heads",
                                    "n_kv_heads",
                                    "head_dim",
                                    "ffn",
                                    "vocab",
                                    "tie_embeddings",
                                    "qkv_bias",
                                    "qk_norm",
                                    "max_context",
                                    "latent.query_rank",
                                    "latent.rank",
                                    "latent.rope_dim",
                                    "latent.key_dim",
                                    "latent.value_dim",
                                    "experts.count",
                                    "experts.active",
                                    "experts.ffn",
                                    "experts.shared",
                                    "experts.shared_width",
                                    "experts.first",
                                    "experts.every",
                                    "experts.offset",
                                    "experts.precision",
                                    "experts.dense_list",
                                    "experts.pattern",
                                    "experts.hidden",
                                    "experts.hidden_norm",
                                    "sliding.window",
                                    "sliding.used",
                                    "sliding.every",
                                    "sliding.types",
                                    "sliding.full_first",
                                    "sliding.chunk",
                                    "global.n_kv_heads",
                                    "global.head_dim",
                                    "values_from_keys",
                                    "recurrence.heads",
                                    "recurrence.expand",
                                    "recurrence.step_rank",
                                    "recurrence.period",
                                    "recurrence.offset",
                                    "recurrence.key_heads",
                                    "recurrence.key_dim",
                                    "recurrence.value_dim",
                                    "recurrence.taps",
                                    "recurrence.every",
                                    "recurrence.attending",
                                    "recurrence.blocks",
                                    "recurrence.full_gate",
                                    "experts.shared_gate",
                                    "output_gate",
                                    "gated_ffn",
                                    "compressed.ratios",
                                    "compressed.window",
                                    "compressed.index_heads",
                                    "compressed.index_dim",
                                    "compressed.index_best",
                                    "compressed.query_rank",
                                    "compressed.rope_dim",
                                    "compressed.output_groups",
                                    "compressed.output_rank",
                                    "streams",
                                    "residual_block",
                                    "rope.theta",
                                    "rope.map",
                                    "quantization"};

KeyNames read_names(Section section, const std::vector<std::string>& allowed, bool all) {
  section.only({allowed.begin(), allowed.end()});
  KeyNames names;
  for (const std::string& key : allowed) {
    if (all || section.has(key)) names.emplace(key, section.texts(key));
  }
  section.finish();
  return names;
}

Architecture read_architecture(Section& section, const std::vector<std::string>& numbers, const KeyNames& keys) {
  Architecture a;
  a.missing = section.text("missing", "");
  if (!a.missing.empty()) return a;
  a.defaults = section.node("defaults");
  if (a.defaults.kind() != Node::Kind::kMap) throw UserError(a.defaults.where(), "defaults: expected a map");
  std::set<std::string> known;
  for (const auto& [number, names] : keys) known.insert(names.begin(), names.end());
  for (const auto& [key, value] : a.defaults.entries()) {
    if (!known.contains(key))
      throw UserError(value.where(), fmt::format("defaults: no number is read from \"{}\"", key));
  }
  if (section.has("also")) a.also = read_names(section.section("also", "also"), numbers, false);
  a.ignored = section.texts("ignored", {});
  a.scaled_context = section.flag("scaled_context", false);
  a.left_out = section.text("left_out", "");
  a.recurrence = section.text("recurrence", "");
  if (const auto reasons = section.optional_node("missing_with")) {
    if (reasons->kind() != Node::Kind::kMap) throw UserError(reasons->where(), "missing_with: expected a map");
    for (const auto& [key, reason] : reasons->entries()) a.missing_with.emplace(key, read_text(reason, "missing_with"));
  }
  return a;
}

}  // namespace

std::vector<std::string> CardTable::modelled() const {
  std::vector<std::string> names;
  for (const auto& [name, architecture] : architectures) {
    if (architecture.missing.empty() && name.find("For") != std::string::npos) names.push_back(name);
  }
  return names;
}

CardTable read_card_table(const std::string& path) {
  const std::vector<std::string> numbers(std::begin(kNumbers), std::end(kNumbers));
  Section section(load_yaml(path), "table of architectures");
  CardTable table;
  table.keys = read_names(section.section("keys", "keys"), numbers, true);
  table.precisions = read_names(section.section("precisions", "precisions"), weight_precisions(), false);
  table.ignored = section.texts("ignored");
  const Node list = section.node("architectures");
  section.finish();
  if (list.kind() != Node::Kind::kList) throw UserError(list.where(), "architectures: expected a list");
  for (const Node& item : list.items()) {
    Section entry(item, "architecture");
    const std::vector<std::string> names = entry.texts("names");
    const Architecture architecture = read_architecture(entry, numbers, table.keys);
    entry.finish();
    for (const std::string& name : names) {
      if (table.architectures.emplace(name, architecture).second) continue;
      throw UserError(entry.where("names"), fmt::format("names: \"{}\" is listed twice", name));
    }
  }
  return table;
}

bool covers(const std::vector<std::string>& patterns, std::string_view key) {
  return std::ranges::any_of(patterns, [&](std::string_view pattern) {
    const bool open_start = pattern.starts_with('*'), open_end = pattern.ends_with('*');
    if (open_start) pattern.remove_prefix(1);
    if (open_end && !pattern.empty()) pattern.remove_suffix(1);
    if (open_start && open_end) return key.find(pattern) != std::string_view::npos;
    return open_start ? key.ends_with(pattern) : open_end ? key.starts_with(pattern) : key == pattern;
  });
}

}  // namespace kvcast::config
