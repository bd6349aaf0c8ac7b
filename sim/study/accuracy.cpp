#include "study/accuracy.hpp"

#include <algorithm>

namespace kvcast::study {

using result::Accuracy;
using result::LayerMap;
using result::TaskScore;

namespace {

// Means over groups of query heads that share a head of the map.
std::vector<double> by_head(const std::vector<double>& values, std::size_t heads) {
  std::vector<double> means(heads, 0);
  const std::size_t each = values.size() / heads;
  for (std::size_t i = 0; i < values.size(); ++i) means[i / each] += values[i] / static_cast<double>(each);
  return means;
}

std::vector<LayerMap> maps_of(const replay::ReplayResult& replayed) {
  std::vector<LayerMap> maps;
  if (std::ssize(replayed.layers) < result::kMappedLayers) return maps;
  const auto heads = static_cast<std::size_t>(std::ranges::min(replayed.layers, {}, &replay::LayerCounts::heads).heads);
  for (const replay::LayerCounts& layer : replayed.layers) {
    std::vector<double> attended(static_cast<std::size_t>(layer.heads), 0);
    for (std::size_t i = 0; i < layer.counts.size(); ++i) {
      const policy::HeadCounts& c = layer.counts[i];
      attended[i % attended.size()] += static_cast<double>(c.attended + c.cpu_attended) / replayed.decode_steps;
    }
    maps.push_back({layer.layer, by_head(attended, heads),
                    by_head({layer.resident.begin(), layer.resident.end()}, heads), by_head(layer.recall_mass, heads)});
  }
  return maps;
}

}  // namespace

std::vector<LayerMap> mean_maps(std::span<const MapShare> shares) {
  const auto like_first = [&](const MapShare& share) {
    return std::ranges::equal(*share.maps, *shares.front().maps, [](const LayerMap& a, const LayerMap& b) {
      return a.layer == b.layer && a.attended.size() == b.attended.size();
    });
  };
  if (!std::ranges::all_of(shares, like_first)) return {};
  double all = 0;
  for (const MapShare& share : shares) all += share.sequences;
  std::vector<LayerMap> mean = *shares.front().maps;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    for (const auto field : {&LayerMap::attended, &LayerMap::resident, &LayerMap::recall_mass}) {
      for (std::size_t h = 0; h < (mean[i].*field).size(); ++h) {
        double sum = 0;
        for (const MapShare& share : shares) sum += share.sequences * ((*share.maps)[i].*field)[h];
        (mean[i].*field)[h] = sum / all;
      }
    }
  }
  return mean;
}

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
  accuracy.layers = maps_of(replayed);
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
  std::vector<MapShare> maps;
  for (const AccuracyShare& part : parts) {
    maps.push_back({&part.accuracy.layers, part.sequences});
    mean.origin = worse(mean.origin, part.accuracy.origin);
    if (mean.task_refused.empty()) mean.task_refused = part.accuracy.task_refused;
    if (!part.accuracy.task) mean.task.reset();
  }
  mean.layers = mean_maps(maps);
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
