// The numbers of a paper's runs as formulas name them, with their origins and uncertainty intervals.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/interval.hpp"
#include "base/origin.hpp"
#include "result/result.hpp"
#include "validate/formula.hpp"

namespace kvcast::validate {

class Records {
 public:
  // The result of the run `name` with its effects, and the results of the same run on other traces.
  void add(const std::string& name, result::Result result, std::vector<result::Result> on_other_traces = {}) {
    results_[name] = std::move(result);
    if (!on_other_traces.empty()) others_[name] = std::move(on_other_traces);
  }

  // Nothing where a number is missing; `missing` then names it, and what did not fit in memory.
  std::optional<double> value(const Formula& formula, std::string& missing) const;

  // Where the formula's value may lie by the uncertainty of costs and by the trace. All costs that rest on one source
  // are off together, in every run that the formula names: in a ratio they cancel as far as both sides have them.
  // Sources are off independently, so that their effects add as squares; traces, of which the i-th others are taken
  // together, count as one more. Nothing where a number is missing; a point where nothing moves it by a thousandth, as
  // for bytes.
  std::optional<Interval> interval(const Formula& formula) const;

  // The worst origin of a number that the formula names.
  Origin origin(const Formula& formula) const;

 private:
  // The result of a run and the name of the number in "RUN.NUMBER".
  std::pair<const result::Result&, std::string> find(const std::string& name) const;
  std::set<std::string> sources(const Formula& formula) const;
  // The formula's value with the first others of all runs that have any, with the second, ...
  std::vector<double> on_other_traces(const Formula& formula) const;

  std::map<std::string, result::Result> results_;
  std::map<std::string, std::vector<result::Result>> others_;
};

}  // namespace kvcast::validate
