// Estimates scores from published scores and the simulation: a Gaussian process models the errors of the simulator.
//
// Let y = asin √(share of the full score / 1.1) of a published score, and s the same transform of the simulated score,
// averaged with other models' simulations of the same paper, method and task. Then
//
//   y = s + Σ over levels + noise.
//
// A level divides the rows into groups, such as the rows of one method on one benchmark. All rows of a group share a
// function of the budget and the scores, which is drawn independently for each group. A row therefore affects a
// prediction to the extent that the two are similar. The part common to all methods has a small variance compared with
// the differences between methods: the prediction for a method without rows stays at the simulation, with the spread
// between methods. A model without rows is predicted from other models' rows, as far as models agree. The noise is
// Student's t with kDegrees degrees of freedom, fitted by iterative reweighting, so that outliers have less influence.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/section.hpp"
#include "evidence/record.hpp"

namespace kvcast::evidence {

// Properties that rows may share. The variance of each level is a component of the model.
enum class Level {
  kBenchmark,         // all rows of a benchmark
  kTask,              // all rows of a task
  kMethod,            // rows of a method on a benchmark, in any paper
  kPaperMethod,       // rows of a paper's method on a benchmark
  kPaperMethodTask,   // rows of a paper's method on a task, by the budget alone
  kModelTask,         // rows of a model on a task, with any method
  kModelMethod,       // rows of a model and a paper's method on a benchmark
  kModelMethodTask,   // rows of a model and a paper's method on a task, by the budget alone
  kModelMethodScore,  // rows of a model and a method on a task in any paper, by the budget and the simulated score
};
inline constexpr std::size_t kLevels = 9;
std::string_view level_name(Level level);

// Benchmarks differ in the error of the simulator, and in the difference between two published scores of one setting.
enum class Family { kRuler, kLongBench, kOther };
inline constexpr std::size_t kFamilies = 3;
Family family_of(const std::string& benchmark);
std::string_view family_name(Family family);  // "ruler", "longbench", "other"

// Chosen by the errors of rows left out, which depend little on the scale of all components together: they determine
// how much rows count, not how wide intervals are.
struct Components {
  std::array<double, kLevels> variance{};
  std::array<double, kFamilies> scale{};  // factor on all variances of levels
  std::array<double, kFamilies> noise{};  // variance
};
// Visits every component with its name.
void for_each_component(Components& components, const std::function<void(const std::string&, double&)>& visit);
// Reads `components:` of configs/accuracy/evidence.yaml. Throws UserError with the location for invalid content.
Components read_components(config::Section section);
std::string write_components(Components components);

// An estimated score in points of 100.
struct Estimate {
  double mean = 0;       // mean of y, transformed back to points
  double deviation = 0;  // scale of y about the mean, noise of a published score included; spread_of() calibrates it
};

// The transform of points, given the full score, and its inverse.
double to_angle(double points, double full);
double to_points(double angle, double full);

// Estimates settings from their most similar rows, whose noise is known.
class Estimator {
 public:
  // Records have the noise that JointFit gives to them; those without one (0) get the kernel's.
  Estimator(std::vector<ScoreRecord> records, const Components& components);
  ~Estimator();
  Estimator(Estimator&&) noexcept;
  Estimator& operator=(Estimator&&) noexcept;

  const std::vector<ScoreRecord>& records() const { return records_; }
  // Ignores the rows for which `is_left_out` returns true; an empty function ignores none.
  Estimate estimate(const ScoredTask& setting, const IsLeftOut& is_left_out = {}) const;

 private:
  struct Benchmark;
  std::vector<ScoreRecord> records_;
  Components components_;
  std::map<std::string, std::unique_ptr<Benchmark>> benchmarks_;
};

// Fits all records at once: reduces the weight of outliers, and estimates records from the others. Takes some seconds
// for 3000 records of a benchmark, a fifth of that if the noise of each is known.
class JointFit {
 public:
  enum class Noise { kFitted, kOfRecords };
  JointFit(std::vector<ScoreRecord> records, const Components& components, Noise noise = Noise::kFitted);
  ~JointFit();

  // The records, with the noise that the fit gives to each.
  const std::vector<ScoreRecord>& records() const { return records_; }
  // Estimates the records at these rows of records() from all others. The weights of the others and their means of
  // simulations still include the contribution of those left out.
  std::vector<Estimate> leave_out(std::span<const std::size_t> rows) const;

 private:
  struct Fit;
  std::vector<ScoreRecord> records_;
  std::vector<std::size_t> places_;                   // index of each record in its benchmark's fit
  std::map<std::string, std::unique_ptr<Fit>> fits_;  // by benchmark
};

}  // namespace kvcast::evidence
