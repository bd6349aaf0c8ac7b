#include "api/replay.hpp"

#include <fmt/format.h>

#include "api/settings.hpp"
#include "base/error.hpp"
#include "config/find.hpp"
#include "policies/all.hpp"
#include "policies/replay_needs.hpp"
#include "replay/steps.hpp"
#include "result/json.hpp"
#include "score/task_score.hpp"
#include "study/default_profile.hpp"
#include "trace/trace.hpp"

namespace kvcast::api {
namespace {

using nlohmann::json;

// A policy that the trace does not suit is named together with the trace.
replay::ReplayResult result_on(const trace::Trace& trace, const config::PolicyChoice& choice, policy::Policy& policy,
                               const replay::ReplayOptions& options, const Cancel& cancel) {
  try {
    return replay::replay(trace, policy, options, config::Precision::kBf16, cancel);
  } catch (const UserError& why) {
    throw UserError(choice.named_at, fmt::format("on {}: {}", trace.info().file, why.what()));
  }
}

}  // namespace

config::PolicyChoice replay_choice(const std::string& policy, const std::vector<std::string>& settings) {
  config::Node choice = config::Node::scalar(policy, {"--policy", 0, 0});
  if (!settings.empty()) {
    choice = config::Node::map({{config::is_path(policy) ? "file" : "name", choice}}, {"--policy", 0, 0});
  }
  return config::read_policy(with_settings(std::move(choice), settings));
}

ReplayedPolicy replay(const std::string& trace_file, const config::PolicyChoice& choice,
                      const replay::ReplayOptions& options, const Cancel& cancel) {
  const policy::Descriptor& descriptor = policy::find_policy(choice);
  const auto trace = trace::open_trace(trace_file);
  const policy::Lengths lengths{trace->info().prompt_tokens, trace->info().decode_steps};
  const bool captured = trace->info().source == "captured";
  const auto policy = policy::make_policy(descriptor, choice.parameters,
                                          captured ? study::profile_of_model(trace->info().model, choice) : nullptr);
  ReplayedPolicy out{choice.name, result_on(*trace, choice, *policy, options, cancel), trace->identity(), {}};
  if (!policy::replay_needs(descriptor, choice.parameters, lengths).rounds) {
    out.task = score::task_score(score::ScoreModel(), out.result);
  }
  return out;
}

json to_json(const ReplayedPolicy& replayed) {
  const replay::ReplayResult& r = replayed.result;
  const replay::Proxies& p = r.proxies;
  json out = {{"policy", replayed.policy},
              {"trace_source", r.trace_source},
              {"prompt_tokens", r.prompt_tokens},
              {"decode_steps", r.decode_steps},
              {"recall_mass_mean", p.recall_mass_mean},
              {"recall_mass_p10", p.recall_mass_p10},
              {"output_error_mean", p.output_error_mean},
              {"topk_overlap_mean", p.topk_overlap_mean},
              {"attended_mean", p.attended_mean},
              {"distinct_mean", p.distinct_mean},
              {"corrected_share", p.corrected_mean},
              {"task", result::to_json(replayed.task)},
              {"bytes",
               {{"hbm", {{"read", r.traffic.hbm_read}, {"write", r.traffic.hbm_write}, {"kv_read", r.traffic.kv_read}}},
                {"link", {{"h2d", r.traffic.h2d}, {"d2h", r.traffic.d2h}}},
                {"dram", {{"cpu_read", r.traffic.cpu_dram}}}}}};
  if (const auto prompt = replay::prompt_attention(r.layers)) {
    out["prompt"] = {{"density", prompt->density}, {"recall_mass_mean", prompt->recall_mass}};
  }
  if (const auto volume = replay::mean_log_volume(r)) out["log_volume_mean"] = *volume;
  if (const std::string why = score::why_no_score(r); !why.empty()) out["task_refused"] = why;
  return out;
}

}  // namespace kvcast::api
