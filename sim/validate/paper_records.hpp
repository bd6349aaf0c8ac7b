// The numbers of a paper's runs as formulas name them, what they rest on and how far they may be off.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/interval.hpp"
#include "base/origin.hpp"
#include "validate/formula.hpp"

namespace kvcast::validate {

// What of a record the number NAME is a time of: decode, prefill or build; empty for what is no time.
std::string phase_of(const std::string& name);

class Records {
 public:
  // What `kvcast run --json` says of the run `name`, with its times under costs that are off (`shifted`, as
  // workload/effects.hpp has them), and what it says of the same run on other traces.
  void add(const std::string& name, nlohmann::json record, std::vector<nlohmann::json> on_other_traces = {}) {
    records_[name] = std::move(record);
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
  std::pair<const nlohmann::json&, std::string> find(const std::string& name) const;
  std::set<std::string> sources(const Formula& formula) const;
  // The formula's value with the first others of all runs that have any, with the second, ...
  std::vector<double> on_other_traces(const Formula& formula) const;

  std::map<std::string, nlohmann::json> records_;
  std::map<std::string, std::vector<nlohmann::json>> others_;
};

}  // namespace kvcast::validate
