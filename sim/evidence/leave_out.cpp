#include "evidence/leave_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>

namespace kvcast::evidence {
namespace {

std::string group_of(const ScoreRecord& r, Novelty novelty) {
  switch (novelty) {
    case Novelty::kTable:
      return r.paper + "\n" + r.table + "\n" + r.model;
    case Novelty::kLength:
      return r.model + "\n" + r.benchmark;
    case Novelty::kModel:
      return r.model;
    case Novelty::kMethod:
      return r.method;
  }
  return "";
}

// Mean share of the full score over the rows nearest in budget.
class Nearest {
 public:
  explicit Nearest(const ScoredTask& setting) : setting_(setting) {}

  void add(const ScoreRecord& r) {
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
  const ScoredTask& setting_;
  double least_ = std::numeric_limits<double>::infinity(), sum_ = 0;
  int count_ = 0;
};

}  // namespace

std::string_view novelty_name(Novelty novelty) {
  constexpr std::array<std::string_view, kNovelties> kNames{"table", "length", "model", "method"};
  return kNames[static_cast<std::size_t>(novelty)];
}

double look_up(const std::vector<ScoreRecord>& records, const ScoredTask& s, const IsLeftOut& is_left_out) {
  Nearest same_model(s), same_method(s), same_task(s);
  for (const ScoreRecord& r : records) {
    if (r.benchmark != s.benchmark || r.task != s.task || (is_left_out && is_left_out(r))) continue;
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

namespace {

using Indices = std::vector<std::size_t>;

// Adds the records of `wanted`, which are among those of the group in `indices` that are left out together.
void add_left_out(const JointFit& fit, const std::string& group, const Indices& indices, const Indices& wanted,
                  std::vector<LeftOutScore>& all) {
  const std::vector<ScoreRecord>& records = fit.records();
  const std::vector<Estimate> estimates = fit.leave_out(indices);
  const std::set<const ScoreRecord*> gone = [&] {
    std::set<const ScoreRecord*> of_group;
    for (const std::size_t i : indices) of_group.insert(&records[i]);
    return of_group;
  }();
  for (std::size_t i = 0, w = 0; i < indices.size() && w < wanted.size(); ++i) {
    if (indices[i] != wanted[w]) continue;
    const ScoreRecord& r = records[wanted[w++]];
    all.push_back(
        {&r, estimates[i], look_up(records, r, [&](const ScoreRecord& o) { return gone.contains(&o); }), group});
  }
}

// Adds the records of a model on a benchmark that states the lengths of its prompts.
void add_lengths(const JointFit& fit, const std::string& group, const Indices& indices,
                 std::vector<LeftOutScore>& all) {
  const std::vector<ScoreRecord>& records = fit.records();
  std::map<double, Indices> lengths;
  for (const std::size_t i : indices) lengths[records[i].context].push_back(i);
  for (const auto& [tokens, wanted] : lengths) {
    if (tokens < kLonger * lengths.begin()->first) continue;
    Indices longer;
    std::copy_if(indices.begin(), indices.end(), std::back_inserter(longer),
                 [&, least = tokens](std::size_t i) { return records[i].context >= least; });
    add_left_out(fit, fmt::format("{}\n{:.0f}", group, tokens), longer, wanted, all);
  }
}

}  // namespace

std::vector<LeftOutScore> leave_out(const JointFit& fit, Novelty novelty) {
  const std::vector<ScoreRecord>& records = fit.records();
  std::map<std::string, Indices> groups;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (novelty != Novelty::kLength || family_of(records[i].benchmark) == Family::kRuler)
      groups[group_of(records[i], novelty)].push_back(i);
  }
  std::vector<LeftOutScore> all;
  for (const auto& [name, indices] : groups) {
    if (novelty == Novelty::kLength) {
      add_lengths(fit, name, indices, all);
    } else {
      add_left_out(fit, name, indices, indices, all);
    }
  }
  return all;
}

double log_error(const std::vector<LeftOutScore>& left_out) {
  std::map<Family, std::pair<double, double>> families;  // → sum of errors, rows
  for (const LeftOutScore& l : left_out) {
    auto& [sum, rows] = families[family_of(l.record->benchmark)];
    sum += std::abs(l.estimate.mean - l.record->published), rows += 1;
  }
  double all = 0;
  for (const auto& [family, errors] : families) all += std::log(errors.first / errors.second);
  return all;
}

}  // namespace kvcast::evidence
