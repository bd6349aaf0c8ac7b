// From what attention keeps to what a benchmark scores: one link for all methods, tables and models.
//
// A step whose targets keep the share R of their attention gives its token with probability 1 − (1 − R)^κ; a task with
// score `exact` needs all tokens of an answer, and the answers before it: what is generated wrong leads what follows
// astray. With `overlap` each token counts by itself; with `count` a word is known by the places of it that are seen, n
// for 1000 tokens of the prompt, with probability 1 − exp(−n / ν). A part of a task's score is had without finding
// anything (its floor).
//
// Both need a model that knows what it is about, from what it has just written or from what it reads elsewhere. It is
// lost with probability u = (1 − O) · (1 − W)^λ: O is the share that heads which do not retrieve keep of all of their
// attention, W of their attention to generated tokens, which λ of them see each for itself. A lost model makes nothing
// of what is found, nor of what it knows; and each token after the first leads the text astray with probability η · u,
// η being the share of tokens that rest on more than the prompt and the token before. What follows is worth nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "replay/target_recall.hpp"
#include "score/catalogue.hpp"

namespace kvcast::score {

struct Parameter {
  double value = 0;
  double low = 0, high = 0;  // where the error of the rows that it moves stays within a twentieth of their least
};

struct Link {
  Parameter kappa{1.5, 1.5, 1.5};
  Parameter places{0.37, 0.37, 0.37};  // ν
  Parameter astray{0.1, 0.1, 0.1};     // η
  Parameter writers{20, 20, 20};       // λ
  // Half-widths of intervals, points: what 80 % of the fitted cells are within, by the predicted share of the full
  // score: below 0.1, up to 0.9, above.
  double residual_low = 0, residual_middle = 0, residual_high = 0;
  // The share of the tasks' errors that all tasks of a benchmark have in common, so that it stays in a mean over them.
  double common = 1;
  std::string source, common_source;

  // Half-widths of the intervals of n tasks, averaged, to that of the tasks' mean.
  double width_of_mean(std::size_t n) const;
};

// Of configs/accuracy/link.yaml. UserError with the place for anything odd.
Link read_link(const std::string& path);
std::string write_link(const Link& link);

// One replayed trace.
struct Sample {
  std::int64_t context = 0;  // tokens of its prompt
  replay::TargetRecall recall;
  std::size_t part = 0;  // of the task
  double weight = 1;     // among samples of the part: prompts that are as long
};

// Share of the full-KV score, in [0, 1].
double share_of_full(const Link& link, const TaskSpec& task, const Sample& sample);
// The parts' weighted mean, or product, each its samples' weighted mean.
double share_of_full(const Link& link, std::span<const TaskPart> parts, std::span<const Sample> samples);

struct Prediction {
  double share = 0, low = 0, high = 0;  // of the full-KV score
};
// Over samples (seeds) of the task's parts; the interval covers the spread of their mean, the link's own and its
// residuals. `full` in points.
Prediction predict(const Link& link, std::span<const TaskPart> parts, std::span<const Sample> samples, double full);
Prediction predict(const Link& link, const TaskSpec& task, std::span<const Sample> samples, double full);

}  // namespace kvcast::score
