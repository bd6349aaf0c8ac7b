// Results of validation: predictions compared with measured or published values, case by case and in summary.
//
// A suite fills in cases and their verdicts; errors and summaries are derived from them. Cases whose parameters were
// chosen with the case in view (held_out false), and cases without a number on either side, never enter an average.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/origin.hpp"
#include "metrics/errors.hpp"

namespace kvcast::validate {

enum class Verdict : unsigned char {
  kAgrees,      // within the case's tolerance
  kBracketed,   // the setting is under-specified; its readings span the expected value, within a factor of four
  kFitted,      // within tolerance, with a parameter that was fitted to this value
  kOff,         // none of the above
  kUnanswered,  // no model here can answer, and the note says why; or the bounds are too wide to say anything
  kUnmeasured,  // to be measured on a machine that is not available
};
std::string_view verdict_name(Verdict verdict);

struct Case {
  std::string id;                   // unique in its suite
  std::string group;                // key of summaries: a paper, a device/framework
  std::string quantity;             // "decode speed-up over full KV"
  std::string unit;                 // "x", "ms", "%"; empty for a trend or a plain number
  std::optional<double> expected;   // measured or published
  std::optional<double> predicted;  // in `unit`
  // Bounds of the true value according to the model: all readings of the setting, each with its interval.
  std::optional<double> low, high;
  // Interval of the prediction alone, from the uncertainty of costs; if unset, low to high is that interval.
  std::optional<double> cost_low, cost_high;
  std::optional<double> baseline;  // estimate without a model, in the same unit; see Suite::baseline_is
  double tolerance = 0;            // relative to expected, as a fraction
  std::optional<double> size;      // x axis of residual plots, in Suite::size_unit
  std::optional<Origin> origin;    // worst origin of the parts that make up a twentieth of the prediction or more
  Verdict verdict = Verdict::kUnmeasured;
  std::string depends_on;  // parameters and readings that the prediction needs, for the reader
  std::string note;        // what is not reproduced and why; why it cannot be answered
  std::string source;      // source of the expected value: paper and location, measurement
  bool held_out = true;    // no parameter was chosen with this value in view
  // A reading, a setting or a parameter of the prediction was chosen by someone who knew the value.
  bool chosen_knowing = false;
  bool repeated = false;  // another case has the same prediction, or it is 1 by construction
};

// predicted / expected − 1; empty if either is missing or the expected value is zero.
std::optional<double> relative_error(const Case& c);

// Returns whether the bounds are narrow enough to say something: high is at most four times low.
bool is_telling(const Case& c);

// The verdict by the numbers: agrees within tolerance; otherwise bracketed if low ≤ expected ≤ high, with bounds
// widened by the tolerance, and `readings` says that the bounds are readings of an under-specified setting, or
// unanswered if these bounds are not telling; fitted instead of agrees if the case is not held out.
Verdict verdict_of(const Case& c, bool readings);

// Marks a case from which a parameter was chosen, which is then not held out, and sets its verdict by the numbers.
void judge(Case& c, bool chosen_from);

// A limit that a suite sets itself.
struct SuiteLimit {
  std::string name;             // "step time, median error"
  std::string unit;             // "%"
  double limit = 0;             // value ≤ limit passes, or value ≥ limit if at_least
  std::optional<double> value;  // empty if there are no data for it
  bool at_least = false;
  bool passed() const { return !value || (at_least ? *value >= limit : *value <= limit); }
};

struct Suite {
  std::string name;                      // "papers"
  std::string question;                  // question that it answers, one sentence
  std::string expected_is = "measured";  // kind of expected values, and their key in JSON: measured, published
  std::string baseline_is;               // kind of Case::baseline: "weights and KV pairs over the bandwidth"
  std::string size_unit;                 // unit of Case::size
  std::string status;                    // empty if it ran; otherwise why not, and what to do about it
  std::vector<Case> cases;
  std::vector<SuiteLimit> budgets;
  nlohmann::json detail;  // details in a form of the suite's own; `--json` prints it alone if it answers a file given
                          // by the user
  // Returns whether all limits hold. A suite that ran without data for any of its limits has lost its cases: false.
  bool passed() const;
};

// Coverage of the intervals of held-out cases whose bounds differ: how many contain the expected value, and the median
// of high over low, since an interval that is always wide enough says little.
struct Coverage {
  int n = 0, covered = 0;
  double median_width = 0;  // 0 if n is 0
};
struct IntervalSummary {
  Coverage costs;            // intervals of the prediction, from the uncertainty of costs
  Coverage bounds;           // low to high: including the other readings of the setting and their intervals
  int exact = 0, equal = 0;  // cases without an interval; those equal to the expected value in all its digits
};

struct GroupSummary {
  std::string group;
  metrics::ErrorSummary errors;
  metrics::ErrorSummary times;          // errors of predictions that depend on costs, not on counts alone
  metrics::ErrorSummary baseline;       // errors of the baseline, over the cases that have one
  metrics::ErrorSummary with_baseline;  // errors of the predictions of the cases that have a baseline
  IntervalSummary intervals;
  std::vector<int> verdicts;  // cases by Verdict
};
// Summarises the held-out cases that have both numbers: over all (group ""), then by group in order of appearance.
std::vector<GroupSummary> summarise(const Suite& suite);

// Summary of predictions based on times, each counted once, for which nobody who knew the value chose readings or
// parameters.
struct Headline {
  metrics::ErrorSummary errors;
  Coverage intervals;
};
Headline headline(const Suite& suite);

// {name, question, status, passed, expected_is, baseline_is, size_unit, cases: [..], budgets: [..], summary: [..],
// detail, blind_times}. Errors are fractions. Absent numbers are null.
nlohmann::json to_json(const Suite& suite);
// {"suites": [..], "passed"}: what `validate --json` prints and DIR/validation.json contains.
nlohmann::json to_json(const std::vector<Suite>& suites);

// The same as text for a terminal.
std::string to_text(const Suite& suite);

// The predictions alone, as CSV, for a file that is written before anything is measured: profile, id, unit, predicted,
// low, high. Throws UserError without a profile.
std::string predictions_text(const Suite& suite, const std::string& profile);

}  // namespace kvcast::validate
