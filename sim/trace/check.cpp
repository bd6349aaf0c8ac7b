// The checks, and the thresholds that separate unusual from ordinary.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/quote.hpp"
#include "config/find.hpp"
#include "trace/inspect.hpp"
#include "trace/metadata.hpp"
#include "trace/safetensors.hpp"
#include "trace/statistics.hpp"
#include "trace/targets.hpp"
#include "trace/trace_file.hpp"

namespace kvcast::trace {
namespace {

// After RoPE the fastest pair turns by a radian per token and its mean over positions vanishes; before, it keeps the
// head's mean. Half of the root mean square is far from both.
constexpr double kLargestFastMean = 0.5;
constexpr std::int64_t kUsualWindow = 32;  // prompt queries of SnapKV and its successors

// A message without the location that its finding names already.
std::string without_location(const std::string& what, const std::string& location) {
  return what.starts_with(location + ": ") ? what.substr(location.size() + 2) : what;
}

class Checker {
 public:
  Checker(const Trace& trace, int threads) : trace_(trace), info_(trace.info()), threads_(threads) {}

  std::vector<TraceFault> check() {
    check_metadata();
    for (std::size_t i = 0; i < info_.layers.size(); ++i) {
      try {
        check_layer(*trace_.load(i, threads_));
      } catch (const UserError& e) {
        error(fmt::format("layer {}", info_.layers[i]), e.what());
      }
    }
    check_targets();
    return std::move(findings_);
  }

 private:
  void error(const std::string& where, const std::string& what) {
    findings_.push_back({TraceFault::Severity::kError, where, what});
  }
  void warn(const std::string& where, const std::string& what) {
    findings_.push_back({TraceFault::Severity::kWarning, where, what});
  }

  void check_metadata() {
    try {
      targets_ = read_targets(info_);
    } catch (const UserError& e) {
      error("targets", without_location(e.what(), "targets"));
      targets_.assign(info_.decode_steps, {});
    }
    check_turns();
    check_model();
    if (info_.longest_window() < kUsualWindow) {
      warn("query_positions", window_text(info_.longest_window()));
    }
  }

  static std::string window_text(std::int64_t window) {
    if (window == 0) {
      return "no prompt query is captured directly before the first decode step; policies that score the prompt with "
             "its last queries cannot be replayed";
    }
    return fmt::format(
        "the last {} captured without a gap; policies that score the prompt with more of its queries cannot be "
        "replayed",
        window == 1 ? "prompt query is" : fmt::format("{} prompt queries are", window));
  }

  void check_targets() {
    const bool any = std::any_of(targets_.begin(), targets_.end(), [](const auto& step) { return !step.empty(); });
    if (!any || !most_on_targets_ || *most_on_targets_ >= kRetrieves) return;
    warn("targets", fmt::format("no captured query head attends to them: at most {:.2g} % of its attention in the mean "
                                "over the steps; the task cannot be scored",
                                100 * *most_on_targets_));
  }

  void check_turns() {
    try {
      turns_of(info_);
    } catch (const UserError& e) {
      error("turns", without_location(e.what(), "turns"));
    }
  }

  void check_model() {
    const std::optional<config::Model> model = named_model(info_);
    if (!model) return;
    const auto text = [](int layers, int q_heads, int kv_heads, int dim, double theta) {
      return fmt::format("{} layers, {} query heads, {} KV heads of {} dimensions, RoPE theta {}", layers, q_heads,
                         kv_heads, dim, theta);
    };
    const std::string here = text(info_.n_layers, info_.n_q_heads, info_.n_kv_heads, info_.head_dim, info_.rope_theta);
    const std::string there =
        text(model->layers, model->n_q_heads, model->n_kv_heads, model->head_dim, model->rope.theta);
    if (here != there) warn("model", fmt::format("{} has {}; the trace has {}", model->name, there, here));
  }

  void check_layer(const Layer& layer) {
    check_keys(layer);
    const std::vector<HeadStatistics> heads = head_statistics(layer, targets_, threads_);
    for (std::size_t q = 0; q < heads.size(); ++q) {
      if (std::isfinite(heads[q].recent_mass)) continue;  // otherwise a replay has no weights to compare
      return error(fmt::format("layers.{}.queries", layer.id()),
                   fmt::format("query head {}: its attention is not a number; keys or queries are too large", q));
    }
    for (const HeadStatistics& h : heads) most_on_targets_ = std::max(most_on_targets_.value_or(0), h.target_mass);
    const auto recent = std::min<double>(HeadStatistics::kRecent, static_cast<double>(info_.prompt_tokens));
    const double uniform = recent / static_cast<double>(info_.positions());
    const bool none_near =
        std::all_of(heads.begin(), heads.end(), [&](const HeadStatistics& h) { return h.recent_mass < uniform; });
    if (none_near) {
      warn(
          fmt::format("layers.{}.queries", layer.id()),
          fmt::format("no head gives the last {} tokens even their share: are queries and keys both after RoPE, at the "
                      "positions stated?",
                      HeadStatistics::kRecent));
    }
    if (info_.decode_steps > 1) check_queries(layer, heads);
  }

  void check_queries(const Layer& layer, const std::vector<HeadStatistics>& heads) {
    for (std::size_t q = 0; q < heads.size(); ++q) {
      if (heads[q].query_cosine > 1 - 1e-6) {
        warn(fmt::format("layers.{}.queries", layer.id()),
             fmt::format("query head {}: all decode steps have one direction", q));
      }
    }
  }

  void check_keys(const Layer& layer) {
    const std::string where = fmt::format("layers.{}.keys", layer.id());
    std::vector<std::string> unrotated, shares;
    for (int head = 0; head < info_.n_kv_heads; ++head) {
      const KeyStatistics keys = key_statistics(layer, head);
      if (keys.value_norm_mean <= 0)
        warn(fmt::format("layers.{}.values", layer.id()), fmt::format("KV head {} is all zero", head));
      if (keys.norm_mean <= 0) {
        warn(where, fmt::format("KV head {} is all zero", head));
      } else if (keys.anisotropy > 1 - 1e-6) {
        warn(where, fmt::format("KV head {}: all keys have one direction", head));
      } else if (keys.fast_pair_mean > kLargestFastMean && info_.positions() >= HeadStatistics::kRecent) {
        unrotated.push_back(std::to_string(head));
        shares.push_back(fmt::format("{:.0f} %", 100 * keys.fast_pair_mean));
      }
    }
    if (unrotated.empty()) return;
    warn(where, fmt::format("KV head{} {} ({}): the share of its length that the fastest RoPE pair keeps in the mean "
                            "over positions is too large; keys must be stored after RoPE",
                            unrotated.size() == 1 ? "" : "s", fmt::join(unrotated, ", "), fmt::join(shares, ", ")));
  }

  const Trace& trace_;
  const TraceInfo& info_;
  const int threads_;
  Targets targets_;
  std::optional<double> most_on_targets_;  // largest mean share of a query head's attention, over all layers
  std::vector<TraceFault> findings_;
};

std::set<std::string> tensors_read(const TraceInfo& info) {
  std::set<std::string> names = {"query_positions"};
  for (const int layer : info.layers) {
    for (const char* what : {"keys", "values", "queries", "hidden"})
      names.insert(fmt::format("layers.{}.{}", layer, what));
  }
  return names;
}

const char* severity_name(TraceFault::Severity severity) {
  return severity == TraceFault::Severity::kError ? "error" : "warning";
}

// JSON takes UTF-8 only; a file's name may be anything.
std::string as_utf8(const std::string& text) {
  const std::string safe = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(safe).get<std::string>();
}

}  // namespace

std::optional<config::Model> named_model(const TraceInfo& info) {
  try {
    return config::read_model(config::find_config("models", info.model, {}));
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::vector<TraceFault> check_trace(const Trace& trace, int threads) { return Checker(trace, threads).check(); }

std::vector<TraceFault> check_trace_file(const std::string& path, int threads) {
  try {
    const SafetensorsFile file = SafetensorsFile::open(path);
    const auto trace = open_trace(file);
    std::vector<TraceFault> findings = check_trace(*trace, threads);
    const std::set<std::string> known = tensors_read(trace->info());
    for (const auto& [name, tensor] : file.tensors()) {
      if (known.count(name) == 0)
        findings.push_back({TraceFault::Severity::kWarning, name, "is a tensor that nothing reads"});
    }
    return findings;
  } catch (const UserError& e) {
    return {{TraceFault::Severity::kError, path, without_location(e.what(), path)}};
  }
}

bool has_errors(const std::vector<TraceFault>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const TraceFault& f) { return f.severity == TraceFault::Severity::kError; });
}

nlohmann::json findings_json(const std::vector<TraceFault>& findings) {
  nlohmann::json out = {{"ok", !has_errors(findings)}, {"findings", nlohmann::json::array()}};
  for (const TraceFault& f : findings) {
    out["findings"].push_back(
        {{"severity", severity_name(f.severity)}, {"where", as_utf8(f.where)}, {"what", as_utf8(f.what)}});
  }
  return out;
}

std::string findings_text(const std::vector<TraceFault>& findings) {
  if (findings.empty()) return "nothing found\n";
  std::string text;
  for (const TraceFault& f : findings) {
    text += fmt::format("{}: {}: {}\n", severity_name(f.severity), escape_controls(f.where), escape_controls(f.what));
  }
  return text;
}

}  // namespace kvcast::trace
