// One estimate from published scores and the simulation: a Gaussian process over what the simulator gets wrong.
//
// With y = asin √(share of the full score / 1.1) of a published score and s the same of the simulated one, other
// models' simulations of the same method and task taken into the mean,
//
//   y = s + Σ over levels + noise.
//
// A level is a set of groups of rows, such as the rows of one method on one benchmark, and a function of the budget
// that all rows of a group share and that is drawn anew for each group. So a row pulls a prediction as far as the two
// are alike. What is common to all methods has a small variance beside what methods differ in: a method without rows
// keeps the simulation, with the spread between methods. A model without rows gets what other models' rows say, as far
// as models agree. The noise is Student's t with kDegrees degrees of freedom by iterated weights, so that odd rows pull
// less.
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

// What rows have in common. Of each level the variance is a component of the model.
enum class Level {
  kBenchmark,         // all rows of a benchmark
  kTask,              // of a task
  kMethod,            // of a method on a benchmark, in any paper
  kPaperMethod,       // of a paper's method on a benchmark
  kPaperMethodTask,   // on a task
  kModelTask,         // of a model on a task, whatever the method
  kModelMethod,       // of a model and a paper's method on a benchmark
  kModelMethodTask,   // on a task, by the budget alone
  kModelMethodScore,  // on a task in any paper, by the budget and the simulated score
};
inline constexpr std::size_t kLevels = 9;
std::string_view level_name(Level level);

// Benchmarks differ in how much the simulator errs, and in how far two published scores of one setting are apart.
enum class Family { kRuler, kLongBench, kOther };
inline constexpr std::size_t kFamilies = 3;
Family family_of(const std::string& benchmark);
std::string_view family_name(Family family);  // "ruler", "longbench", "other"

struct Components {
  std::array<double, kLevels> variance{};
  std::array<double, kFamilies> scale{};  // factor on all of these
  std::array<double, kFamilies> noise{};  // variance
};
// Visits every component with its name.
void for_each_component(Components& components, const std::function<void(const std::string&, double&)>& visit);
// `components:` of configs/accuracy/evidence.yaml. UserError with the place for anything odd.
Components read_components(config::Section section);
std::string write_components(Components components);

// Points of 100.
struct Estimate {
  double mean = 0;       // y of the mean, back in points
  double deviation = 0;  // standard deviation of y about the mean, noise of a published score included
};

// The transform and its inverse, of points and the full score.
double to_angle(double points, double full);
double to_points(double angle, double full);

// Estimates settings from the rows that are most like them, whose noise is known.
class Estimator {
 public:
  // Records have a noise, as JointFit finds it.
  Estimator(std::vector<Record> records, const Components& components);
  ~Estimator();
  Estimator(Estimator&&) noexcept;
  Estimator& operator=(Estimator&&) noexcept;

  const std::vector<Record>& records() const { return records_; }
  // Rows for which `is_left_out` holds are not seen; none: all are.
  Estimate estimate(const Setting& setting, const IsLeftOut& is_left_out = {}) const;

 private:
  struct Benchmark;
  std::vector<Record> records_;
  Components components_;
  std::map<std::string, std::unique_ptr<Benchmark>> benchmarks_;
};

// All records at once: weighs odd ones, and estimates records from others. Some seconds for 3000 records of a
// benchmark; a fifth of that where the noise of each is known.
class JointFit {
 public:
  enum class Noise { kFitted, kOfRecords };
  JointFit(std::vector<Record> records, const Components& components, Noise noise = Noise::kFitted);
  ~JointFit();

  // With the noise that the fit gives to each.
  const std::vector<Record>& records() const { return records_; }
  // Estimates of these records by all others; places in records(). What the others' weights and their means of
  // simulations owe to them stays.
  std::vector<Estimate> leave_out(std::span<const std::size_t> places) const;

 private:
  struct Fit;
  std::vector<Record> records_;
  std::vector<std::size_t> places_;                   // of records in their benchmark's fit
  std::map<std::string, std::unique_ptr<Fit>> fits_;  // by benchmark
};

}  // namespace kvcast::evidence
