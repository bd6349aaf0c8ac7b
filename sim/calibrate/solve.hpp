// Least squares within bounds: finds the parameters that minimise errors, without letting a few outliers decide.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace kvcast::calibrate {

// minimum uncertainty of a number taken from another kernel or another machine
inline constexpr double kLeastDoubt = 0.5;

struct FitParameter {
  std::string key;  // for messages: "gpu.floor_attention"
  double low = 0, high = 1;
  double start = 0;  // within the bounds
  // The prior, before any point is seen, in the parameter's own unit; width 0: none. It decides if the points do not
  // identify the parameter, and hardly counts if they do.
  double centre = 0, width = 0;
};

// Sets a prior on a parameter in its own unit, not in logarithms: `value` with an uncertainty of at least a half, from
// which the search starts.
void set_prior(FitParameter& parameter, double value, double uncertainty);

struct Solution {
  std::vector<double> values;          // one per parameter
  double cost = 0;                     // mean over the points of weight · loss
  std::vector<std::string> at_bounds;  // keys of parameters that ended at a bound: their values are not known
};

// Fills in the errors of all points for these values of the parameters: log(predicted / measured).
using Errors = std::function<void(std::span<const double> values, std::span<double> errors)>;

// Minimises Σ weight · 2 s² (√(1 + (e/s)²) − 1), s = 0.05: squares for small errors, absolute values for large ones;
// plus (0.03 · (value − centre) / width)² for each parameter with a width, which weighs like times with a few per cent
// of error. Levenberg-Marquardt with numerical derivatives (Eigen's port of MINPACK) on v = low + (high − low) (1 + sin
// u) / 2. weights: one per point, > 0; at least as many points as parameters.
Solution solve(std::span<const FitParameter> parameters, std::span<const double> weights, const Errors& errors);

// The same loss for given errors.
double loss(std::span<const double> errors, std::span<const double> weights);

// Errors, log(predicted / measured), of points that a fit had not seen.
struct UnseenErrors {
  std::vector<double> errors, weights;
  double loss() const;  // infinite without points
  // Half-width that holds four fifths of the relative errors: a profile states 80 % intervals. 0 without points.
  double spread() const;
};

}  // namespace kvcast::calibrate
