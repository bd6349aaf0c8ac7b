// What validation finds: predictions beside what was measured or published, case by case and in sum.
//
// A suite fills in cases; judge() derives errors, the summary and the verdict of the whole. Cases whose parameters were
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
  kBracketed,   // the setting is under-specified; its readings span the expected value
  kFitted,      // within tolerance, with a parameter that was fitted to this very value
  kOff,         // outside of all that
  kUnanswered,  // no model here can answer; the note says why
  kUnmeasured,  // to be measured on a machine that is not at hand
};
std::string_view verdict_name(Verdict verdict);

struct Case {
  std::string id;                   // unique in its suite
  std::string group;                // what summaries are made by: a paper, a device/framework
  std::string quantity;             // "decode speed-up over full KV"
  std::string unit;                 // "x", "ms", "%"; empty for a trend or a plain number
  std::optional<double> expected;   // measured or published
  std::optional<double> predicted;  // in the same unit
  // Where the truth may lie by the model: readings of the setting, each with its interval.
  std::optional<double> low, high;
  // The prediction alone, by what its costs may be off; where it is not stated low to high is that.
  std::optional<double> cost_low, cost_high;
  std::optional<double> baseline;  // what one would say without a model, in the same unit; see Suite::baseline_is
  double tolerance = 0;            // relative to expected, as a fraction
  std::optional<double> size;      // what residuals are drawn over, in Suite::size_unit
  std::optional<Origin> origin;    // the worst that a twentieth of the prediction rests on
  Verdict verdict = Verdict::kUnmeasured;
  std::string rests_on;  // parameters and readings that the prediction needs, for the reader
  std::string note;      // what does not come out and why; why it cannot be answered
  std::string source;    // of the expected value: paper and place, measurement
  bool held_out = true;  // no parameter was chosen with this value in view
  // A reading, a setting or a parameter that it depends on was chosen by someone who knew the value.
  bool chosen_knowing = false;
  bool repeated = false;  // another case asks for the same prediction, or it is 1 by construction
};

// predicted / expected − 1; nothing where a side is missing or zero is expected.
std::optional<double> relative_error(const Case& c);

// Verdict by the numbers: agrees within tolerance; else bracketed where low ≤ expected ≤ high, bounds widened by the
// tolerance, and `readings` says that the bounds are readings of an under-specified setting; fitted instead of agrees
// where the case is not held out.
Verdict verdict_of(const Case& c, bool readings);

// A limit that a suite sets itself.
struct Budget {
  std::string name;             // "step time, median error"
  std::string unit;             // "%"
  double limit = 0;             // value ≤ limit passes, or ≥ where at_least
  std::optional<double> value;  // nothing where there is nothing to judge
  bool at_least = false;
  bool passed() const { return !value || (at_least ? *value >= limit : *value <= limit); }
};

struct Suite {
  std::string name;                      // "papers"
  std::string question;                  // what it answers, one sentence
  std::string expected_is = "measured";  // what the expected values are, and their key in JSON: measured, published
  std::string baseline_is;               // what Case::baseline is: "weights and KV pairs over the bandwidth"
  std::string size_unit;                 // of Case::size
  std::string status;                    // empty where it ran; else why not, and what to do about it
  std::vector<Case> cases;
  std::vector<Budget> budgets;
  nlohmann::json detail;  // what the suite has to say in a form of its own; `--json` prints it alone where it is the
                          // answer to a file that the user gave
  bool passed() const;
};

// How intervals fared, of held-out cases whose ends lie apart: how many hold the expected value, and the median of high
// over low: an interval that always holds because it is wide says little.
struct Coverage {
  int n = 0, covered = 0;
  double median_width = 0;  // 0 without n
};
struct IntervalSummary {
  Coverage costs;            // of the prediction, by what its costs may be off
  Coverage bounds;           // low to high: with the other readings of the setting and theirs
  int exact = 0, equal = 0;  // without an interval; equal to the expected value in all digits that it is given with
};

struct GroupSummary {
  std::string group;
  metrics::ErrorSummary errors;
  metrics::ErrorSummary times;     // of those whose prediction rests on a cost: what follows from counts alone left out
  metrics::ErrorSummary baseline;  // of the cases that have one
  metrics::ErrorSummary beside;    // of the predictions of these cases
  IntervalSummary intervals;
  std::vector<int> verdicts;  // cases by Verdict
};
// Of the held-out cases that have both numbers: over all (group ""), then by group in order of appearance.
std::vector<GroupSummary> summarise(const Suite& suite);

// Of predictions that rest on times, each counted once, whose readings and parameters nobody chose knowing the value.
struct Headline {
  metrics::ErrorSummary errors;
  Coverage intervals;
};
Headline headline(const Suite& suite);

// {name, question, status, passed, expected_is, size_unit, cases: [..], budgets: [..], summary: [..], detail}. Errors
// are fractions. Absent numbers are null.
nlohmann::json to_json(const Suite& suite);
// {"suites": [..], "passed"}: what `validate --json` prints and DIR/validation.json holds.
nlohmann::json to_json(const std::vector<Suite>& suites);

// The same for a terminal.
std::string to_text(const Suite& suite);

}  // namespace kvcast::validate
