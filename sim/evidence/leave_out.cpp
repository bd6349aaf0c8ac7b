#include "evidence/leave_out.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/quantile.hpp"

namespace kvcast::evidence {
namespace {

std::string group_of(const Record& r, Novelty novelty) {
  switch (novelty) {
    case Novelty::kTable:
      return r.paper + "\n" + r.table + "\n" + r.model;
    case Novelty::kModel:
      return r.model;
    case Novelty::kMethod:
      return r.method;
  }
  return "";
}

// Mean share of the rows nearest in budget.
class Nearest {
 public:
  explicit Nearest(const Setting& setting) : setting_(setting) {}

  void add(const Record& r) {
    if (r.full <= 0) return;
    const double distance = setting_.budget > 0 && r.budget > 0
                                ? std::abs(std::log2(r.budget_share() / setting_.budget_share()))
                            : setting_.budget == r.budget ? 0
                                                          : kFar;
    constexpr double kAlike = 1e-6;
    if (distance > least_ + kAlike) return;
    if (distance < least_ - kAlike) sum_ = 0, count_ = 0, least_ = distance;
    sum_ += r.published / r.full, ++count_;
  }
  bool any() const { return count_ > 0; }
  double points() const { return std::min(100.0, sum_ / count_ * setting_.full); }

 private:
  static constexpr double kFar = 100;
  const Setting& setting_;
  double least_ = std::numeric_limits<double>::infinity(), sum_ = 0;
  int count_ = 0;
};

}  // namespace

std::string_view novelty_name(Novelty novelty) {
  constexpr std::array<std::string_view, kNovelties> kNames{"table", "model", "method"};
  return kNames[static_cast<std::size_t>(novelty)];
}

double look_up(const std::vector<Record>& records, const Setting& s,
               const std::function<bool(const Record&)>& is_left_out) {
  Nearest same_model(s), same_method(s), same_task(s);
  for (const Record& r : records) {
    if (r.benchmark != s.benchmark || r.task != s.task || is_left_out(r)) continue;
    same_task.add(r);
    if (r.method != s.method) continue;
    same_method.add(r);
    if (r.model == s.model) same_model.add(r);
  }
  for (const Nearest* nearest : {&same_model, &same_method, &same_task}) {
    if (nearest->any()) return nearest->points();
  }
  return s.full;
}

std::vector<LeftOut> leave_out(const JointFit& fit, Novelty novelty) {
  const std::vector<Record>& records = fit.records();
  std::map<std::string, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < records.size(); ++i) groups[group_of(records[i], novelty)].push_back(i);
  std::vector<LeftOut> all;
  for (const auto& [name, places] : groups) {
    const std::vector<Estimate> estimates = fit.leave_out(places);
    const auto is_left_out = [&, name = name](const Record& r) { return group_of(r, novelty) == name; };
    for (std::size_t i = 0; i < places.size(); ++i) {
      const Record& r = records[places[i]];
      all.push_back({&r, estimates[i], look_up(records, r, is_left_out)});
    }
  }
  return all;
}

Stack best_stack(const std::vector<LeftOut>& left_out) {
  constexpr int kParts = 6;
  Stack best;
  double least = std::numeric_limits<double>::infinity();
  for (int e = kParts; e >= 0; --e) {
    for (int s = 0; s + e <= kParts; ++s) {
      const Stack stack{e / double{kParts}, s / double{kParts}, (kParts - e - s) / double{kParts}};
      double error = 0;
      for (const LeftOut& l : left_out) error += std::abs(l.stacked(stack) - l.record->published);
      if (error < least) least = error, best = stack;
    }
  }
  return best;
}

double spread_of(const std::vector<LeftOut>& left_out, const Stack& stack) {
  std::vector<double> off;
  for (const LeftOut& l : left_out) {
    const double full = l.record->full;
    off.push_back(std::abs(to_angle(l.record->published, full) - to_angle(l.stacked(stack), full)) /
                  l.estimate.deviation);
  }
  return off.empty() ? 1.28 : quantile(off, .8);
}

double log_density(const std::vector<LeftOut>& left_out) {
  constexpr double kDegrees = 4;
  double sum = 0;
  for (const LeftOut& l : left_out) {
    const double full = l.record->full;
    const double z = (to_angle(l.record->published, full) - to_angle(l.estimate.mean, full)) / l.estimate.deviation;
    sum -= (kDegrees + 1) / 2 * std::log1p(z * z / kDegrees) + std::log(l.estimate.deviation);
  }
  return left_out.empty() ? 0 : sum / static_cast<double>(left_out.size());
}

}  // namespace kvcast::evidence
