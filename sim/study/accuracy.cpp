#include "study/accuracy.hpp"

#include <algorithm>

namespace kvcast::study {

using result::Accuracy;
using result::TaskScore;

result::Accuracy accuracy_of(const replay::ReplayResult& replayed, const score::ScoreModel& scores) {
  const replay::Proxies& p = replayed.proxies;
  result::Accuracy accuracy;
  accuracy.recall_mass_mean = p.recall_mass_mean, accuracy.recall_mass_p10 = p.recall_mass_p10;
  accuracy.output_error_mean = p.output_error_mean, accuracy.topk_overlap_mean = p.topk_overlap_mean;
  accuracy.attended_mean = p.attended_mean, accuracy.distinct_mean = p.distinct_mean;
  accuracy.corrected_share = p.corrected_mean;
  if (const auto prompt = replay::prompt_attention(replayed.layers, replayed.dense_layers)) {
    accuracy.prompt_density = prompt->density;
    accuracy.prompt_recall_mass_mean = std::min(1.0, prompt->recall_mass);  // rounding
  }
  accuracy.origin = replayed.trace_source == "captured" ? Origin::kExact : Origin::kAssumed;
  accuracy.task = score::task_score(scores, replayed);
  accuracy.task_refused = score::why_no_score(replayed);
  return accuracy;
}

result::Accuracy mean_accuracy(std::span<const AccuracyShare> parts) {
  Accuracy mean = parts.front().accuracy;
  if (parts.size() == 1) return mean;
  double all = 0;
  for (const AccuracyShare& part : parts) all += part.sequences;
  const auto over_parts = [&](const auto& value_of) {
    double sum = 0;
    for (const AccuracyShare& part : parts) sum += part.sequences / all * value_of(part.accuracy);
    return sum;
  };
  for (const auto field :
       {&Accuracy::recall_mass_mean, &Accuracy::recall_mass_p10, &Accuracy::output_error_mean,
        &Accuracy::topk_overlap_mean, &Accuracy::attended_mean, &Accuracy::distinct_mean, &Accuracy::corrected_share}) {
    mean.*field = over_parts([&](const Accuracy& a) { return a.*field; });
  }
  for (const auto field : {&Accuracy::prompt_density, &Accuracy::prompt_recall_mass_mean}) {
    const bool any =
        std::ranges::any_of(parts, [&](const AccuracyShare& p) { return (p.accuracy.*field).has_value(); });
    if (any) mean.*field = over_parts([&](const Accuracy& a) { return (a.*field).value_or(1); });
  }
  for (const AccuracyShare& part : parts) {
    mean.origin = worse(mean.origin, part.accuracy.origin);
    if (mean.task_refused.empty()) mean.task_refused = part.accuracy.task_refused;
    if (!part.accuracy.task) mean.task.reset();
  }
  if (!mean.task) return mean;
  const auto of_task = [&](const auto& value_of) {
    return over_parts([&](const Accuracy& a) { return value_of(*a.task); });
  };
  for (const auto field : {&TaskScore::share_of_full, &TaskScore::recall_mean, &TaskScore::other_recall})
    (*mean.task).*field = of_task([&](const TaskScore& t) { return t.*field; });
  mean.task->interval = {of_task([](const TaskScore& t) { return t.interval.low; }),
                         of_task([](const TaskScore& t) { return t.interval.high; })};
  mean.task->steps = 0;
  for (const AccuracyShare& part : parts) {
    mean.task->steps += part.accuracy.task->steps;
    mean.task->recall_min = std::min(mean.task->recall_min, part.accuracy.task->recall_min);
  }
  return mean;
}

}  // namespace kvcast::study
