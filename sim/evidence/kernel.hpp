// How alike two settings are: the covariance of what the simulator gets wrong in them.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>

#include "evidence/estimator.hpp"

namespace kvcast::evidence {

// A setting with what the kernel needs of it.
struct Point {
  double angle = 0, share = 0, tokens = 0, full = 0;  // of the budget: share and tokens as powers of two
  std::array<std::size_t, kLevels> group{};
};

// Returns what the simulation says of a setting, as an angle: the mean over models of its own simulation and those of
// other models' rows with the same method and task, at like budgets. What the simulator makes of the difference between
// two models is mostly noise. `is_seen` is asked for places of the rows.
double pooled_angle(const Setting& setting, const Point& at, std::span<const Record* const> records,
                    std::span<const Point> points, const std::function<bool(std::size_t place)>& is_seen);

// Of one benchmark: benchmarks share no level.
class Kernel {
 public:
  Kernel(const Components& components, const std::string& benchmark);

  // Groups are numbered as they are met.
  Point point(const Setting& setting);
  double operator()(const Point& a, const Point& b) const;
  // Variance of a published score about what the model makes of it; one of few points says little about its share.
  double noise(const Setting& setting) const;

 private:
  std::size_t number(const std::string& group);

  Components components_;
  double scale_ = 1, noise_ = 0;
  std::unordered_map<std::string, std::size_t> numbers_;
  std::size_t alone_ = 0;  // groups of one setting
};

}  // namespace kvcast::evidence
