// The score model: maps the attention that a policy keeps to a benchmark score, with one map for all methods, tables
// and models.
//
// A step whose targets keep the share R of their attention yields its token with probability 1 − (1 − R)^κ. A task with
// score `exact` needs all tokens of an answer and the answers before it: wrong output leads the rest astray. With
// `overlap` each token counts by itself; with `count` a word is known from the places where it is seen, n per 1000
// tokens of the prompt, with probability 1 − exp(−n / ν). A part of a task's score is reached without finding anything
// (its floor).
//
// Answers and floor both require a model that knows what the text is about, from what it has just written or from what
// it reads elsewhere. It is lost with probability u = (1 − O) · (1 − W)^λ: O is the share of all their attention that
// non-retrieval heads keep, W that of their attention to generated tokens, which λ of them see independently. A lost
// model can use neither the tokens found nor its own knowledge, and each token after the first leads the text astray
// with probability η · u, η being the share of tokens that depend on more than the prompt and the previous token.
// Everything after that scores nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "replay/target_recall.hpp"
#include "score/catalogue.hpp"

namespace kvcast::score {

struct MapParameter {
  double value = 0;
  double low = 0, high = 0;  // range in which the error of the rows that it moves is at most 5 % above its minimum
};

struct RecallMap {
  MapParameter kappa{1.5, 1.5, 1.5};
  MapParameter places{0.37, 0.37, 0.37};  // ν
  MapParameter astray{0.1, 0.1, 0.1};     // η
  MapParameter writers{20, 20, 20};       // λ
  // Half-widths of intervals in points, which contain 80 % of the fitted cells, by the predicted share of the full
  // score: below 0.1, up to 0.9, above.
  double residual_low = 0, residual_middle = 0, residual_high = 0;
  // The share of the tasks' errors that all tasks of a benchmark have in common, which a mean over them does not
  // reduce.
  double common = 1;
  std::string source, common_source;
};

// Reads configs/accuracy/link.yaml. Throws UserError with the location of anything invalid.
RecallMap read_recall_map(const std::string& path);
std::string write_recall_map(const RecallMap& link);

// One replayed trace.
struct Sample {
  std::int64_t context = 0;  // tokens of its prompt
  replay::TargetRecall recall;
  std::size_t part = 0;  // index of the task's part
  double weight = 1;     // among samples of the part: number of prompts of this length
};

// Share of the score with the full KV cache, in [0, 1].
double share_of_full(const RecallMap& link, const TaskSpec& task, const Sample& sample);
// The weighted mean, or the product, of the parts, each the weighted mean of its samples.
double share_of_full(const RecallMap& link, std::span<const TaskPart> parts, std::span<const Sample> samples);

struct SharePrediction {
  double share = 0, low = 0, high = 0;  // of the score with the full KV cache
};
// The prediction over samples (seeds) of the task's parts; the interval covers the spread of their mean, the ranges of
// the score model's parameters and its residuals. `full` is in points.
SharePrediction predict(const RecallMap& link, std::span<const TaskPart> parts, std::span<const Sample> samples,
                        double full);
SharePrediction predict(const RecallMap& link, const TaskSpec& task, std::span<const Sample> samples, double full);

}  // namespace kvcast::score
