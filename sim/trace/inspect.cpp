#include "trace/inspect.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/quantile.hpp"
#include "base/quote.hpp"
#include "base/units.hpp"
#include "trace/statistics.hpp"
#include "trace/targets.hpp"

namespace kvcast::trace {
namespace {

// The printed statistics: name in JSON, title for people.
struct Column {
  const char* name;
  const char* title;
  double HeadStatistics::*field;
};
constexpr Column kColumns[] = {{"sink_mass", "sink", &HeadStatistics::sink_mass},
                               {"recent_mass", "recent", &HeadStatistics::recent_mass},
                               {"target_mass", "target", &HeadStatistics::target_mass},
                               {"effective_tokens", "eff.tokens", &HeadStatistics::effective_tokens},
                               {"query_cosine", "q.cosine", &HeadStatistics::query_cosine},
                               {"top_overlap", "overlap", &HeadStatistics::top_overlap},
                               {"key_mean_cosine", "q.k-mean", &HeadStatistics::key_mean_cosine}};

nlohmann::json layer_json(const Layer& layer, const Targets& targets, int threads) {
  const std::vector<HeadStatistics> heads = head_statistics(layer, targets, threads);
  nlohmann::json out = {{"layer", layer.id()}};
  // Scores of a damaged layer overflow: nothing is known of its attention.
  const bool known =
      std::all_of(heads.begin(), heads.end(), [](const HeadStatistics& h) { return std::isfinite(h.recent_mass); });
  for (const Column& column : kColumns) {
    if (!known) {
      out[column.name] = nullptr;
      continue;
    }
    std::vector<double> values;
    for (const HeadStatistics& head : heads) values.push_back(head.*column.field);
    out[column.name] = {{"mean", mean(values)}, {"p10", quantile(values, 0.1)}, {"p90", quantile(values, 0.9)}};
  }
  double norms = 0, anisotropy = 0;
  const int n = layer.info().n_kv_heads;
  for (int h = 0; h < n; ++h) {
    const KeyStatistics keys = key_statistics(layer, h);
    norms += keys.norm_mean / n;
    anisotropy += keys.anisotropy / n;
  }
  out["key_norm"] = norms;
  out["key_anisotropy"] = anisotropy;
  return out;
}

}  // namespace

nlohmann::json trace_info(const Trace& trace, int threads) {
  const TraceInfo& info = trace.info();
  const Targets targets = read_targets(info);
  const auto with_targets = std::count_if(targets.begin(), targets.end(), [](const auto& t) { return !t.empty(); });
  const double numbers = info.head_dim * (2.0 * info.n_kv_heads * static_cast<double>(info.positions()) +
                                          static_cast<double>(info.n_q_heads) * static_cast<double>(info.n_queries()));
  nlohmann::json out = {{"model", info.model},
                        {"source", info.source},
                        {"identity", trace.identity()},
                        {"layers", info.layers},
                        {"n_layers", info.n_layers},
                        {"n_q_heads", info.n_q_heads},
                        {"n_kv_heads", info.n_kv_heads},
                        {"head_dim", info.head_dim},
                        {"rope_theta", info.rope_theta},
                        {"prompt_tokens", info.prompt_tokens},
                        {"decode_steps", info.decode_steps},
                        {"captured_prompt_queries", info.prompt_queries()},
                        {"longest_window", info.longest_window()},
                        {"hidden", info.hidden},
                        {"steps_with_targets", with_targets},
                        {"layer_bytes_in_memory", numbers * sizeof(float)},
                        {"recent_tokens", HeadStatistics::kRecent},
                        {"metadata", info.optional},
                        {"attention", nlohmann::json::array()}};
  for (std::size_t i = 0; i < info.layers.size(); ++i) {
    out["attention"].push_back(layer_json(*trace.load(i, threads), targets, threads));
  }
  return out;
}

std::string trace_info_text(const nlohmann::json& info) {
  const auto number = [&](const char* key) { return info.at(key).get<std::int64_t>(); };
  std::string text = fmt::format("{} trace of {}\n", info.at("source").get<std::string>(),
                                 escape_controls(info.at("model").get<std::string>()));
  text += fmt::format("  identity  {}\n", info.at("identity").get<std::string>());
  text += fmt::format("  layers    {} of {}\n", fmt::join(info.at("layers").get<std::vector<int>>(), ", "),
                      number("n_layers"));
  text += fmt::format("  heads     {} query, {} KV, {} channels, RoPE theta {}\n", number("n_q_heads"),
                      number("n_kv_heads"), number("head_dim"), info.at("rope_theta").get<double>());
  text += fmt::format("  tokens    {} prompt + {} decode steps, {} with targets\n", number("prompt_tokens"),
                      number("decode_steps"), number("steps_with_targets"));
  text += fmt::format("  queries   {} of the prompt, longest observation window {}\n",
                      number("captured_prompt_queries"), number("longest_window"));
  text += fmt::format("  memory    {} a layer\n",
                      format_quantity(info.at("layer_bytes_in_memory").get<double>(), Dimension::kBytes));
  for (const auto& [key, value] : info.at("metadata").items()) {
    const std::string written = value.get<std::string>();
    text += fmt::format("  {:<9} {}\n", escape_controls(key),
                        escape_controls(written.size() > 100 ? written.substr(0, 97) + "..." : written));
  }
  text += fmt::format(
      "attention of the decode steps, mean over query heads (10th .. 90th percentile); recent: the last {} tokens\n  "
      "layer",
      number("recent_tokens"));
  for (const Column& column : kColumns) text += fmt::format(" {:>20}", column.title);
  for (const auto& layer : info.at("attention")) {
    text += fmt::format("\n  {:>5}", layer.at("layer").get<int>());
    for (const Column& column : kColumns) {
      const auto& value = layer.at(column.name);
      text += fmt::format(" {:>20}", value.is_null()
                                         ? "not a number"
                                         : fmt::format("{:.2f} ({:.2f} .. {:.2f})", value.at("mean").get<double>(),
                                                       value.at("p10").get<double>(), value.at("p90").get<double>()));
    }
  }
  return text + "\n";
}

}  // namespace kvcast::trace
