#include "validate/gpu_pipeline.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/quote.hpp"
#include "calibrate/fit_stages.hpp"
#include "validate/gpu_steps.hpp"
#include "validate/transfer.hpp"

namespace kvcast::validate {
namespace {

constexpr double kMedianBudget = 5, kWorstBudget = 12, kOrderBudget = 95;  // per cent
// Steps whose measured times are closer than this have no order to predict.
constexpr double kTie = 0.01;

// Text that distinguishes rows of a scheme: the axes that are not the model's.
std::string variant_of(const calibrate::MeasuredRow& row) {
  std::string text = row.bench;
  for (const char* name : {"graph", "speculation", "correction", "buffers"}) {
    const auto at = row.numbers.find(name);
    if (at != row.numbers.end()) text += fmt::format(", {} {}", name, at->second);
  }
  for (const char* name : {"layout", "recall"}) {
    const auto at = row.words.find(name);
    if (at != row.words.end()) text += ", " + at->second;
  }
  return text;
}

// link.engine_turn was chosen from the H200's rows of recalls that alternate between two buffers.
bool chose_engine_turn(const calibrate::MeasuredRow& row) {
  const auto buffers = row.numbers.find("buffers");
  return row.bench == "freekv" && !row.words.contains("recall") && buffers != row.numbers.end() && buffers->second == 2;
}

Case case_of(const calibrate::MeasuredRow& row, const config::Hardware& machine, const std::string& source) {
  Case c;
  c.note = not_modelled(row);
  StepPrediction predicted;
  if (c.note.empty()) predicted = predict_step(gpu_step(row, machine));
  c.id = row.id();
  c.group = row.bench;
  c.quantity =
      fmt::format("step time, {}, {} x {} tokens", variant_of(row), row.number("batch"), row.number("context"));
  c.unit = "ms";
  c.expected = 1e3 * row.seconds / row.number("steps");
  c.tolerance = kWorstBudget / 100;
  c.size = row.number("context");
  c.source = source;
  c.depends_on = "the profile of single kernels, copies and host calls of that machine";
  if (!c.note.empty()) return c;
  if (predicted.out_of_memory.empty()) {
    c.predicted = 1e3 * predicted.seconds;
    set_interval(c, predicted.uncertainty, 0);
    c.origin = predicted.origin;
  } else {
    c.note = fmt::format("the simulator finds no room in {}", predicted.out_of_memory);
  }
  return c;
}

// Share of the pairs of schemes at one context and batch whose predicted order is the measured one.
std::optional<double> ordered_share(const Suite& suite, const std::vector<std::string>& groups) {
  double right = 0, pairs = 0;
  for (std::size_t i = 0; i < suite.cases.size(); ++i) {
    for (std::size_t j = i + 1; j < suite.cases.size(); ++j) {
      const Case &a = suite.cases[i], &b = suite.cases[j];
      if (groups[i] != groups[j] || !a.predicted || !b.predicted) continue;
      if (std::abs(*a.expected / *b.expected - 1) < kTie) continue;
      pairs += 1;
      right += (*a.expected < *b.expected) == (*a.predicted < *b.predicted) ? 1 : 0;
    }
  }
  return pairs > 0 ? std::optional(100 * right / pairs) : std::nullopt;
}

void add(const Measured& from, Suite& suite, std::vector<std::string>& groups, std::int64_t& skipped) {
  const calibrate::Results results = calibrate::read_results(from.results);
  const config::Hardware machine = config::read_hardware(config::find_config("hardware", from.profile, {}));
  const std::string name = calibrate::text_of(results, "device", "a device without a name");
  if (machine.title.find(name) == std::string::npos) {
    suite.status +=
        fmt::format("{}{} ran on {}, predicted from the profile of {}: errors are those of the profile, too",
                    suite.status.empty() ? "" : "; ", from.results, name, machine.title);
  }
  for (const calibrate::MeasuredRow& row : results.rows) {
    Case& c = suite.cases.emplace_back(case_of(row, machine, fmt::format("kvcast-pipeline on {}", name)));
    judge(c, from.in_view && chose_engine_turn(row));
    groups.push_back(fmt::format("{}: {} {}", from.results, row.numbers.at("context"), row.numbers.at("batch")));
  }
  skipped += static_cast<std::int64_t>(results.skipped.size());
}

// The given results, or all of the project's.
std::vector<Measured> sources_of(const Measured& input) {
  std::vector<Measured> all = given_or_committed("gpu_pipeline", input, "pipeline.json");
  if (input.results.empty()) std::ranges::copy(given_or_committed("", input, "recall.json"), std::back_inserter(all));
  return all;
}

// A name or a word of an axis as a cell of a table; others than the program writes would break it.
const std::string& cell(const calibrate::MeasuredRow& row, const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  throw UserError({row.file}, fmt::format("{}: {} is neither a name nor a word of an axis", row.bench, quote(text)));
}

std::string axis_text(const calibrate::MeasuredRow& row, const std::string& name) {
  if (const auto word = row.words.find(name); word != row.words.end()) return cell(row, word->second);
  const auto number = row.numbers.find(name);
  return number == row.numbers.end() ? "" : fmt::format("{}", number->second);
}

// Empty without a prediction.
std::string seconds_text(const calibrate::MeasuredRow& row, const config::Hardware& machine) {
  if (!not_modelled(row).empty()) return "";
  const StepPrediction predicted = predict_step(gpu_step(row, machine));
  return predicted.out_of_memory.empty() ? fmt::format("{:.6g}", predicted.seconds) : "";
}

}  // namespace

Suite gpu_pipeline(const Measured& input) {
  Suite suite;
  suite.name = "gpu_pipeline";
  suite.question = "How accurately are a decode layer's pipelines of real kernels and streams predicted?";
  suite.size_unit = "tokens of context";
  const std::vector<Measured> sources = sources_of(input);
  std::vector<std::string> groups;
  std::int64_t skipped = 0;
  for (const Measured& source : sources) add(source, suite, groups, skipped);
  if (!sources.empty()) suite.detail = {{"skipped", skipped}};
  if (suite.cases.empty()) {
    suite.status =
        "unmeasured: no machine with a GPU has run it; it takes part in no average. kernels/measure.sh runs it on one; "
        "then kvcast validate gpu_pipeline --from pipeline.json --profile PROFILE.yaml";
    return suite;
  }
  std::vector<double> errors;
  for (const Case& c : suite.cases) {
    if (relative_error(c)) errors.push_back(*relative_error(c));
  }
  const metrics::ErrorSummary s = metrics::summarise_errors(errors);
  const auto value = [&](double x) { return s.n > 0 ? std::optional<double>(100 * x) : std::nullopt; };
  suite.budgets = {{"step time, median error of all cases", "%", kMedianBudget, value(s.median)},
                   {"step time, largest error of all cases", "%", kWorstBudget, value(s.max)},
                   {"pairs of schemes in the right order", "%", kOrderBudget, ordered_share(suite, groups), true}};
  return suite;
}

std::string gpu_predictions(const Measured& input) {
  std::set<std::string> axes;
  std::vector<std::pair<calibrate::MeasuredRow, std::string>> rows;  // with their profile
  for (const Measured& source : sources_of(input)) {
    calibrate::Results results = calibrate::read_results(source.results);
    std::ranges::move(results.skipped, std::back_inserter(results.rows));
    for (calibrate::MeasuredRow& row : results.rows) {
      if (row.work.empty()) continue;
      for (const auto& [name, number] : row.numbers) axes.insert(cell(row, name));
      for (const auto& [name, word] : row.words) axes.insert(cell(row, name));
      rows.emplace_back(std::move(row), source.profile);
    }
  }
  std::string text = fmt::format("scheme,{},profile,predicted_s\n", fmt::join(axes, ","));
  for (const auto& [row, profile] : rows) {
    text += row.bench;
    for (const std::string& name : axes) text += "," + axis_text(row, name);
    const config::Hardware machine = config::read_hardware(config::find_config("hardware", profile, {}));
    text += fmt::format(",{},{}\n", cell(row, profile), seconds_text(row, machine));
  }
  return text;
}

}  // namespace kvcast::validate
