// The numbers of a paper's runs under the names that formulas use, with their origins and uncertainty intervals.
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
  // Adds the result of the run `name` with its effects, and the results of the same run on other traces.
  void add(const std::string& name, result::Result result, std::vector<result::Result> on_other_traces = {}) {
    results_[name] = std::move(result);
    if (!on_other_traces.empty()) others_[name] = std::move(on_other_traces);
  }

  // Empty if a number is missing; `missing` then names it and, if its run did not fit in memory, the pool.
  std::optional<double> value(const Formula& formula, std::string& missing) const;

  // The interval of the formula's value given the uncertainty of costs and of the trace. All costs with the same source
  // err together in every run that the formula names: in a ratio their errors cancel to the extent that both sides
  // contain them. Sources err independently, so their effects add in quadrature; the other traces, the i-th of all runs
  // together, count as one more source. Empty if a number is missing; a single point if nothing moves the value by a
  // thousandth, as for bytes.
  std::optional<Interval> interval(const Formula& formula) const;

  // The worst origin among the numbers that the formula names.
  Origin origin(const Formula& formula) const;

 private:
  // The result of a run and the name of the number in "RUN.NUMBER".
  std::pair<const result::Result&, std::string> find(const std::string& name) const;
  std::set<std::string> sources(const Formula& formula) const;
  // The formula's values: the i-th one uses the i-th other trace of every run that has one.
  std::vector<double> on_other_traces(const Formula& formula) const;

  std::map<std::string, result::Result> results_;
  std::map<std::string, std::vector<result::Result>> others_;
};

}  // namespace kvcast::validate
