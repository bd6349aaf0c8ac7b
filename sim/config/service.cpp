#include "config/service.hpp"

#include <fmt/format.h>

#include <string_view>

namespace kvcast::config {

void read_service(Section& section, Run& run) {
  if (!section.has("traffic")) {
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
  run.traffic = read_traffic(section.section("traffic", "traffic"));
  run.scheduler = run.framework.scheduler;
  if (!section.has("scheduler")) return;
  const Section rules = section.section("scheduler", "scheduler");
  run.scheduler = laid_over(run.framework.scheduler, read_scheduler(rules));
  if (run.scheduler.host_cache.value_or(0) > 0) {
    throw UserError(rules.where("host_cache"), "scheduler: blocks in host memory are not simulated; host_cache is 0");
  }
  refuse_other_rules(rules, run.scheduler.kind.value_or(Scheduler::Kind::kVllmV1));
}

}  // namespace kvcast::config
