// A time is linear in the inverse of the rates and in the host's time: its derivatives at the machine as it is are
// enough to fit, and to leave rows out, without simulating again.

#include "calibrate/steps.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <set>

#include "calibrate/solve.hpp"

namespace kvcast::calibrate {
namespace {

constexpr double kStepNoise = 0.03;      // of a measured time: the least that noise is taken to be
constexpr double kTo80Percent = 1.2816;  // standard deviations of an 80 % interval
constexpr double kLargestFactor = 4;     // of a rate, up or down
constexpr double kLongestHost = 0.25;    // seconds between steps
constexpr double kLeastShare = 0.02;     // share of a time from which on it says something about a number
constexpr std::size_t kFewestTimes = 4;  // that decide an interval

enum StepNumber : std::size_t { kOfMemory, kOfProducts, kOfHost, kStepNumbers };
constexpr const char* kStepNames[kStepNumbers] = {"rate of memory", "rate of products", "time between steps"};

StepScales scales_of(std::span<const double> v) {
  return {std::exp(v[kOfMemory]), std::exp(v[kOfProducts]), v[kOfHost]};
}

// The share of a time that a number decides.
double decided_share(const MeasuredTime& t, StepNumber number, const StepPriors& priors) {
  const double seconds = number == kOfMemory ? t.memory : number == kOfProducts ? t.products : t.passes * priors.host_s;
  return std::abs(seconds) / t.predicted;
}

double time_error(const MeasuredTime& t, const StepScales& scales) {
  return std::log(scaled_time(t, scales) / t.measured);
}

std::vector<double> time_errors(std::span<const MeasuredTime> times, const StepScales& scales) {
  std::vector<double> errors;
  for (const MeasuredTime& t : times) errors.push_back(time_error(t, scales));
  return errors;
}

double mean_magnitude(std::span<const double> errors) {
  double sum = 0;
  for (const double e : errors) sum += std::abs(e);
  return errors.empty() ? 0 : sum / static_cast<double>(errors.size());
}

class StepProblem {
 public:
  StepProblem(std::span<const MeasuredTime> times, const StepPriors& priors) : times_(times), priors_(priors) {
    const double reach = std::log(kLargestFactor);
    parameters_ = {{kStepNames[kOfMemory], -reach, reach, 0, 0, priors.rates},
                   {kStepNames[kOfProducts], -reach, reach, 0, 0, priors.rates},
                   {kStepNames[kOfHost], priors.least_host_s, kLongestHost, 0, 0, priors.host_s}};
    for (const StepNumber number : {kOfMemory, kOfProducts, kOfHost}) {
      const bool reached = std::ranges::any_of(
          times, [&](const MeasuredTime& t) { return decided_share(t, number, priors) > kLeastShare; });
      if (reached && fitted_.size() < times.size()) fitted_.push_back(number);
    }
  }

  const std::vector<StepNumber>& fitted() const { return fitted_; }

  StepScales solve() const {
    std::vector<double> all(kStepNumbers, 0.0);
    if (fitted_.empty()) return scales_of(all);
    std::vector<FitParameter> parameters;
    for (const StepNumber number : fitted_) parameters.push_back(parameters_[number]);
    const std::vector<double> weights(times_.size(), 1.0);
    const auto place = [&](std::span<const double> values) {
      for (std::size_t i = 0; i < fitted_.size(); ++i) all[fitted_[i]] = values[i];
      return scales_of(all);
    };
    const Solution solution =
        calibrate::solve(parameters, weights, [&](std::span<const double> values, std::span<double> errors) {
          const StepScales scales = place(values);
          for (std::size_t i = 0; i < times_.size(); ++i) errors[i] = time_error(times_[i], scales);
        });
    return place(solution.values);
  }

  // Half-widths from the curvature of the loss at its minimum, for noise as large as the residuals.
  StepScales half_widths(const StepScales& scales) const {
    const auto n = static_cast<Eigen::Index>(fitted_.size());
    const std::vector<double> residuals = time_errors(times_, scales);
    const double noise = std::max(kStepNoise, 1.2533 * mean_magnitude(residuals));  // sd of a normal from its mean size
    Eigen::MatrixXd precision = Eigen::MatrixXd::Zero(n, n);
    for (const MeasuredTime& t : times_) {
      const double now = scaled_time(t, scales);
      const double slopes[kStepNumbers] = {-t.memory / scales.memory / now, -t.products / scales.products / now,
                                           t.passes / now};
      for (Eigen::Index i = 0; i < n; ++i) {
        for (Eigen::Index j = 0; j < n; ++j) {
          precision(i, j) += slopes[fitted_[i]] * slopes[fitted_[j]] / (noise * noise);
        }
      }
    }
    std::vector<double> widths = {priors_.rates * kTo80Percent, priors_.rates * kTo80Percent,
                                  priors_.host_s * kTo80Percent};
    for (Eigen::Index i = 0; i < n; ++i) {
      const double width = parameters_[fitted_[i]].width;
      precision(i, i) += 1 / (width * width);
    }
    const Eigen::MatrixXd covariance = precision.inverse();
    for (Eigen::Index i = 0; i < n; ++i) {
      widths[fitted_[i]] = kTo80Percent * std::sqrt(covariance(i, i));
    }
    return {widths[kOfMemory], widths[kOfProducts], widths[kOfHost]};
  }

 private:
  std::span<const MeasuredTime> times_;
  const StepPriors& priors_;
  std::vector<FitParameter> parameters_;
  std::vector<StepNumber> fitted_;
};

double step_interval(std::vector<double> errors, double prior) {
  const std::size_t n = errors.size();
  if (n < kFewestTimes) return prior;
  for (double& e : errors) e = std::abs(e);
  std::ranges::sort(errors);
  const auto rank = static_cast<std::size_t>(std::ceil(0.8 * static_cast<double>(n + 1)));
  return std::max(kStepNoise, errors[std::min(rank, n) - 1]);
}

}  // namespace

double scaled_time(const MeasuredTime& t, const StepScales& scales) {
  const double seconds = t.predicted + t.memory * (1 / scales.memory - 1) + t.products * (1 / scales.products - 1) +
                         t.passes * scales.host_s;
  return std::max(seconds, 1e-3 * t.predicted);  // shares of an overlapped step are slopes, which need not add up
}

bool StepFit::better() const { return mean_magnitude(left_out) < mean_magnitude(before); }

StepFit fit_steps(std::span<const MeasuredTime> times, const StepPriors& priors) {
  std::set<std::size_t> rows;
  for (const MeasuredTime& t : times) rows.insert(t.row);
  if (rows.size() < 2) throw UserError("calibrate steps: a single row cannot be left out; measure several settings");
  StepFit fit;
  fit.before = time_errors(times, {});
  const StepProblem whole(times, priors);
  fit.scales = whole.solve();
  fit.half_widths = whole.half_widths(fit.scales);
  fit.after = time_errors(times, fit.scales);
  for (const StepNumber number : {kOfMemory, kOfProducts, kOfHost}) {
    if (std::ranges::find(whole.fitted(), number) == whole.fitted().end()) fit.kept.emplace_back(kStepNames[number]);
  }
  fit.left_out.resize(times.size());
  for (const std::size_t row : rows) {
    std::vector<MeasuredTime> others;
    std::ranges::copy_if(times, std::back_inserter(others), [&](const MeasuredTime& t) { return t.row != row; });
    const StepScales scales = StepProblem(others, priors).solve();
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i].row == row) fit.left_out[i] = time_error(times[i], scales);
    }
  }
  fit.interval = step_interval(fit.left_out, priors.rates);
  return fit;
}

}  // namespace kvcast::calibrate
