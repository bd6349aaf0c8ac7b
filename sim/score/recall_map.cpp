// An answer is a run of steps with targets; free steps separate answers.
#include "score/recall_map.hpp"

#include <algorithm>
#include <cmath>

#include "base/quantile.hpp"
#include "config/section.hpp"

namespace kvcast::score {
namespace {

double success(const RecallMap& link, const TaskSpec& task, double context, const replay::StepRecall& step) {
  if (task.score == Score::kCount) {
    const auto known = [&](double places) { return 1 - std::exp(-1000 * places / (context * link.places.value)); };
    return known(step.mean_tokens()) / known(static_cast<double>(step.targets));
  }
  const double missed = std::clamp(1 - step.recall(), 0.0, 1.0);
  return 1 - std::pow(missed, link.kappa.value);
}

// Probability that the model neither sees what it has written nor reads the rest.
double lost(const RecallMap& link, const replay::TargetRecall& recall) {
  const double unseen = std::clamp(1 - recall.written_recall(), 0.0, 1.0);
  return std::clamp(1 - recall.other_recall(), 0.0, 1.0) * std::pow(unseen, link.writers.value);
}

// The mean over an answer's tokens of the probability that the text has not gone astray before them.
double written_share(int tokens, double on) { return on >= 1 ? 1 : (1 - std::pow(on, tokens)) / (tokens * (1 - on)); }

// The share of one answer from its replayed steps.
double answer_share(const TaskSpec& task, const std::vector<double>& steps) {
  if (task.score != Score::kExact) return mean(steps);
  // Replayed steps represent all steps: the first one starts the answer from the question, the others continue it.
  double log_all = 0;
  const double stands_for =
      steps.size() > 1 ? std::max(0.0, static_cast<double>(task.answer - 1) / static_cast<double>(steps.size() - 1))
                       : 1;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    log_all += (i == 0 ? 1 : stands_for) * std::log(std::max(1e-12, steps[i]));
  }
  return std::exp(log_all);
}

MapParameter read_parameter(config::Section& root, const char* key) {
  config::Section s = root.section(key, key);
  const double value = s.number("value", 0, 100);
  MapParameter p{value, s.number("low", 0, 100, value), s.number("high", 0, 100, value)};
  s.finish();
  return p;
}

std::string parameter_text(const char* key, const MapParameter& p) {
  return fmt::format("{}: {{value: {:.4g}, low: {:.4g}, high: {:.4g}}}\n", key, p.value, p.low, p.high);
}

}  // namespace

RecallMap read_recall_map(const std::string& path) {
  config::Section s(config::load_yaml(path), "accuracy link");
  RecallMap link;
  link.kappa = read_parameter(s, "kappa");
  link.places = read_parameter(s, "places");
  link.astray = read_parameter(s, "astray");
  link.writers = read_parameter(s, "writers");
  link.residual_low = s.number("residual_low", 0, 100);
  link.residual_middle = s.number("residual_middle", 0, 100);
  link.residual_high = s.number("residual_high", 0, 100);
  link.common = s.number("common", 0, 1, 1.0);
  link.source = s.text("source");
  link.common_source = s.text("common_source", "");
  s.finish();
  return link;
}

std::string write_recall_map(const RecallMap& link) {
  return fmt::format(
      "source: \"{}\"\n{}{}{}{}residual_low: {:.3g}\nresidual_middle: {:.3g}\nresidual_high: {:.3g}\n"
      "{}common: {:.3g}\n",
      link.source, parameter_text("kappa", link.kappa), parameter_text("places", link.places),
      parameter_text("astray", link.astray), parameter_text("writers", link.writers), link.residual_low,
      link.residual_middle, link.residual_high,
      link.common_source.empty() ? "" : fmt::format("common_source: \"{}\"\n", link.common_source), link.common);
}

double share_of_full(const RecallMap& link, const TaskSpec& task, const Sample& sample) {
  std::vector<double> answers, steps;
  const auto close = [&] {
    if (steps.empty()) return;
    const double before = task.score == Score::kExact && !answers.empty() ? answers.back() : 1;
    answers.push_back(before * answer_share(task, steps));
    steps.clear();
  };
  for (const replay::StepRecall& step : sample.recall.steps) {
    if (step.targets == 0) {
      close();
    } else {
      steps.push_back(success(link, task, static_cast<double>(sample.context), step));
    }
  }
  close();
  const double found = answers.empty() ? 1 : mean(answers);
  const double adrift = lost(link, sample.recall), on = 1 - link.astray.value * adrift;
  // An exact answer scores nothing before its last token.
  const double written = task.score == Score::kExact ? std::pow(on, task.answer - 1) : written_share(task.answer, on);
  const double share = (1 - adrift) * written * (task.floor + (1 - task.floor) * found);
  if (task.attempts == 1) return share;
  // One attempt of the full model finds what that model finds at all with probability `attempt`; the compressed model
  // finds it with a share of that probability.
  const auto in_any = [&](double chance) { return 1 - std::pow(1 - chance, task.attempts); };
  return in_any(share * task.attempt) / in_any(task.attempt);
}

namespace {

struct Weighted {
  double share = 0, weight = 0;  // weights add up to 1
};

std::vector<Weighted> shares_of(const RecallMap& link, std::span<const TaskPart> parts, std::size_t part,
                                std::span<const Sample> samples) {
  std::vector<Weighted> shares;
  double all = 0;
  for (const Sample& sample : samples) {
    if (sample.part != part) continue;
    shares.push_back({share_of_full(link, parts[part].task, sample), sample.weight});
    all += sample.weight;
  }
  KVCAST_CHECK(all > 0);
  for (Weighted& w : shares) w.weight /= all;
  return shares;
}

double mean(const std::vector<Weighted>& values) {
  double sum = 0;
  for (const Weighted& v : values) sum += v.weight * v.share;
  return sum;
}

double variance_of_mean(const std::vector<Weighted>& values) {
  const auto n = static_cast<double>(values.size());
  if (n < 2) return 0;
  const double middle = mean(values);
  double square = 0;
  for (const Weighted& v : values) square += std::pow(v.weight * (v.share - middle), 2);
  return square * n / (n - 1);
}

}  // namespace

double share_of_full(const RecallMap& link, std::span<const TaskPart> parts, std::span<const Sample> samples) {
  double sum = 0, product = 1;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const double share = mean(shares_of(link, parts, p, samples));
    sum += parts[p].weight * share;
    product *= share;
  }
  return parts.front().factor ? product : sum;
}

SharePrediction predict(const RecallMap& link, std::span<const TaskPart> parts, std::span<const Sample> samples,
                        double full) {
  SharePrediction p;
  p.share = p.low = p.high = share_of_full(link, parts, samples);
  for (MapParameter RecallMap::*const parameter :
       {&RecallMap::kappa, &RecallMap::places, &RecallMap::astray, &RecallMap::writers}) {
    for (const double value : {(link.*parameter).low, (link.*parameter).high}) {
      RecallMap other = link;
      (other.*parameter).value = value;
      const double share = share_of_full(other, parts, samples);
      p.low = std::min(p.low, share);
      p.high = std::max(p.high, share);
    }
  }
  double variance = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::vector<Weighted> shares = shares_of(link, parts, i, samples);
    const double weight = parts[i].factor ? p.share / std::max(1e-3, mean(shares)) : parts[i].weight;
    variance += weight * weight * variance_of_mean(shares);
  }
  const double of_mean = std::sqrt(variance);
  const double residual = (p.share < 0.1    ? link.residual_low
                           : p.share <= 0.9 ? link.residual_middle
                                            : link.residual_high) /
                          std::max(1.0, full);
  p.low = std::max(0.0, p.low - of_mean - residual);
  p.high += of_mean + residual;
  return p;
}

SharePrediction predict(const RecallMap& link, const TaskSpec& task, std::span<const Sample> samples, double full) {
  const TaskPart whole{task};
  return predict(link, std::span(&whole, 1), samples, full);
}

}  // namespace kvcast::score
