// How alike two settings are: the covariance of what the simulator gets wrong in them.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <unordered_map>

#include "evidence/estimator.hpp"

namespace kvcast::evidence {

// A setting with what the kernel needs of it.
struct Point {
  double angle = 0, share = 0, tokens = 0, full = 0;  // of the budget: share and tokens as powers of two
  std::array<std::size_t, kLevels> group{};
};

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
