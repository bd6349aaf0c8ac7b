// Suite `papers`: do published efficiency claims follow from the mechanisms simulated here?
//
// Claims are data: files of configs/validation/papers. Each claim is answered by a formula over results of runs, or
// states why no model here can answer it. Nothing is fitted here: each claim lists the inputs of its prediction.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/yaml.hpp"
#include "result/result.hpp"
#include "study/point.hpp"
#include "validate/formula.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// An experiment from which claims are computed.
struct PaperRun {
  std::string name;                           // letters, digits and _
  study::Point point;                         // its configuration, and the effects that claims are computed from
  std::vector<config::Node> on_other_traces;  // configurations of the same run on other traces
};

// One way to read an under-specified setting.
struct Reading {
  std::string of;  // name of the reading; empty if there is only one
  Formula predict;
  std::optional<Formula> holds = {};  // of a trend: true if it is reproduced under this reading
};

struct Claim {
  Case base;                      // id, group, quantity, unit, expected, tolerance, size, texts, held_out
  std::vector<Reading> readings;  // the first is the prediction; empty: not answered, base.note says why
  std::string times;              // group of the suite `times` that it also belongs to; empty: none
  bool is_trend() const { return !readings.empty() && readings.front().holds.has_value(); }
};

struct Paper {
  std::string group;
  std::vector<PaperRun> runs;
  std::vector<Claim> claims;
};

// Throws UserError for an invalid file: a claim with both an answer and a reason for having none, or with neither, a
// formula that names no run, or a run that no claim uses.
Paper read_paper(const std::string& path);
// Reads all files of a folder in alphabetical order; throws UserError if an id occurs twice.
std::vector<Paper> read_papers(const std::string& folder);

// Runs the points and returns their results in order.
using RunAll = std::function<std::vector<result::Result>(std::vector<study::Point>)>;

// Every claim as a case, in order. Claims on times of single experiments have a baseline: the bytes of weights and of
// attended KV pairs over the memory bandwidth, and the products of a prompt over the peak.
std::vector<Case> cases_of(const std::vector<Paper>& papers, const RunAll& run_all);
inline constexpr const char* kStepBaseline = "weights and KV pairs over the bandwidth";

Suite papers(const std::vector<Paper>& papers, const RunAll& run_all);

}  // namespace kvcast::validate
