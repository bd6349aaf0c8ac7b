// Similarity of two settings: the covariance of the simulator's errors in them.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>

#include "evidence/estimator.hpp"

namespace kvcast::evidence {

// Properties of a setting that the kernel needs.
struct SettingPoint {
  double angle = 0, share = 0, tokens = 0, full = 0;  // share and tokens: log2 of the budget
  std::array<std::size_t, kLevels> group{};
  bool shares_heads = true;  // several query heads share a KV head
  double loss = 1;           // factor on errors, which vanish for a budget that covers the prompt
};

// Returns the simulated score of a setting as an angle: the mean over models of its own simulation and those of other
// models' rows with the same method, paper and task, at similar budgets. Simulated differences between two models are
// mostly noise; differences between papers are not, because their settings of a method differ. `is_seen` takes indices
// of the rows.
double pooled_angle(const ScoredTask& setting, const SettingPoint& at, std::span<const ScoreRecord* const> records,
                    std::span<const SettingPoint> points, const std::function<bool(std::size_t index)>& is_seen);

// Kernel of one benchmark; benchmarks share no level.
class Covariance {
 public:
  Covariance(const Components& components, const std::string& benchmark);

  // Numbers new groups in the order of their use.
  SettingPoint point(const ScoredTask& setting);
  double operator()(const SettingPoint& a, const SettingPoint& b) const;
  // Variance of a published score about the model; larger for small full scores, whose shares are less precise.
  double noise(const ScoredTask& setting) const;

 private:
  std::size_t number(const std::string& group);

  Components components_;
  double scale_ = 1, noise_ = 0;
  std::unordered_map<std::string, std::size_t> numbers_;
  std::size_t alone_ = 0;  // number of groups of a single setting
};

}  // namespace kvcast::evidence
