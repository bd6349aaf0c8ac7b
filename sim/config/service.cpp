#include "config/service.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "base/build.hpp"

namespace kvcast::config {
namespace {

struct Published {
  double budget = 0, tokens = 0;
};

std::vector<Published> read_points(const Node& list) {
  std::vector<Published> points;
  for (const Node& row : list.items()) {
    points.push_back(
        {read_number(row.items().at(0), "budget", 1, 1e9), read_number(row.items().at(1), "tokens", 1, 1e9)});
  }
  return points;
}

// Returns the factor on output lengths under the policy with its budget (configs/accuracy/answer_lengths.yaml): 1 for
// the uncompressed cache. Throws UserError at `asked_at` for a policy without published lengths, without a written
// budget, or with a budget beyond them.
double published_length_factor(const PolicyChoice& policy, const SourceLocation& asked_at) {
  Section table(load_yaml(data_dir() + "/configs/accuracy/answer_lengths.yaml"), "answer lengths");
  table.text("source");
  const double uncompressed = table.number("uncompressed", 1, 1e9);
  const Node policies = table.node("policies");
  table.finish();
  std::vector<std::string> known;
  for (const auto& [name, points] : policies.entries()) known.push_back(name);
  const Node* const of_policy = policies.find(policy.name);
  if (of_policy == nullptr) {
    throw UserError(
        asked_at, fmt::format("length_factor: no lengths of answers are published for {}; give a number", policy.name),
        known);
  }
  if (of_policy->items().empty()) return 1;
  const Node* const budget = policy.parameters.find("budget");
  if (budget == nullptr)
    throw UserError(asked_at, "length_factor: `published` depends on the policy's budget, which is not written");
  const double tokens = read_number(*budget, "budget", 1, 1e9);
  const std::vector<Published> points = read_points(*of_policy);
  if (tokens < points.front().budget || tokens > points.back().budget) {
    throw UserError(
        asked_at,
        fmt::format("length_factor: lengths of answers are published for budgets of {} to {}, not {}; give a number",
                    points.front().budget, points.back().budget, tokens));
  }
  std::size_t i = 0;
  while (i + 2 < points.size() && points[i + 1].budget < tokens) ++i;
  const Published &low = points[i], &high = points[i + 1];
  const double share = std::log(tokens / low.budget) / std::log(high.budget / low.budget);
  return (low.tokens + share * (high.tokens - low.tokens)) / uncompressed;
}

// Caches behind the GPU need what is before them, and their rates.
void check_caches(const SchedulerRules& s, const Section& rules) {
  const auto refuse = [&](const char* key, const char* why) {
    throw UserError(rules.where(key), fmt::format("scheduler: {} {}", key, why));
  };
  const bool host = s.host_cache.value_or(0) > 0, storage = s.storage_cache.value_or(0) > 0,
             remote = s.remote_cache.value_or(0) > 0;
  if (storage && !host) refuse("storage_cache", "lies behind host_cache, which is 0");
  if (remote && !host) refuse("remote_cache", "lies behind host_cache, which is 0");
  if (storage && (!s.storage_read || !s.storage_write)) refuse("storage_cache", "needs storage_read and storage_write");
  if (remote && !s.remote_rate) refuse("remote_cache", "needs remote_rate");
  if (!storage && s.storage_read) refuse("storage_read", "is of storage_cache, which is 0");
  if (!storage && s.storage_write) refuse("storage_write", "is of storage_cache, which is 0");
  if (!remote && s.remote_rate) refuse("remote_rate", "is of remote_cache, which is 0");
  if (!remote && s.remote_latency) refuse("remote_latency", "is of remote_cache, which is 0");
  if (!host && s.shared_copies) refuse("shared_copies", "is of host_cache, which is 0");
  if (!host && s.cache_writes) refuse("cache_writes", "is of host_cache, which is 0");
  if (!host && s.blocking_copies) refuse("blocking_copies", "is of host_cache, which is 0");
  if (s.blocking_copies.value_or(false) && s.cache_writes == SchedulerRules::WriteTo::kBack)
    refuse("blocking_copies", "is not with `cache_writes: back`");
  if (!host || s.prefix_caching.value_or(true)) return;
  if (s.kind.value_or(SchedulerRules::Kind::kVllmV1) == SchedulerRules::Kind::kSglang)
    refuse("prefix_caching", "is needed by host_cache, which is a part of SGLang's");
  if (s.cache_writes == SchedulerRules::WriteTo::kBack) refuse("prefix_caching", "is needed by `cache_writes: back`");
}

}  // namespace

void read_service(Section& section, Run& run) {
  run.scheduler = run.framework.scheduler;
  if (!section.has("traffic")) {
    resolve_budget(run.policy, run.workload.prompt_tokens);
    for (const char* key : {"replicas", "prefill_replicas"}) {
      const int number =
          std::string_view(key) == "replicas" ? run.deployment.replicas - 1 : run.deployment.prefill_replicas;
      if (number == 0) continue;
      throw UserError(run.source.find("deployment")->key_where(key),
                      fmt::format("{}: serve `traffic:`, which the run does not have", key));
    }
    if (!section.has("scheduler")) return;
    throw UserError(section.where("scheduler"), "scheduler: belongs to `traffic:`, which the run does not have");
  }
  if (section.has("workload")) {
    throw UserError(section.where("workload"), "a run has either `workload:`, one batch, or `traffic:`, requests");
  }
  for (const char* key : {"match", "pipeline_parallel"}) {
    const bool set = std::string_view(key) == "match" ? run.match.has_value() : run.deployment.pipeline_parallel > 1;
    if (set) throw UserError(section.where("traffic"), fmt::format("traffic: not with {}", key));
  }
  Section traffic = section.section("traffic", "traffic");
  run.traffic = read_traffic(traffic);
  if (run.traffic->published_factor)
    run.traffic->length_factor = published_length_factor(run.policy, traffic.where("length_factor"));
  if (!section.has("scheduler")) return;
  const Section rules = section.section("scheduler", "scheduler");
  run.scheduler = laid_over(run.framework.scheduler, read_scheduler(rules));
  check_caches(run.scheduler, rules);
  if (run.scheduler.shared_copies &&
      ((!run.model.latent && !run.model.compressed) || run.deployment.tensor_parallel == 1)) {
    throw UserError(rules.where("shared_copies"),
                    "scheduler: shared_copies is of models with latent or compressed attention on several GPUs; others "
                    "have no copies to share");
  }
  refuse_other_rules(rules, run.scheduler.kind.value_or(SchedulerRules::Kind::kVllmV1));
}

}  // namespace kvcast::config
