#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/csv.hpp"
#include "base/quote.hpp"
#include "calibrate/json_file.hpp"
#include "calibrate/steps.hpp"

namespace kvcast::calibrate {
namespace {

constexpr double kLongestMs = 1e8, kMostTokens = 1e8, kMostSequences = 65536;

double positive_cell(const SourceLocation& where, const char* column, const std::string& text, double limit) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value > 0 && value <= limit) return value;
  throw UserError(where,
                  fmt::format("{}: expected a number above 0 and up to {:g}, found {}", column, limit, quote(text)));
}

std::int64_t whole_cell(const SourceLocation& where, const char* column, const std::string& text, double limit) {
  const double value = positive_cell(where, column, text, limit);
  if (value == std::floor(value)) return static_cast<std::int64_t>(value);
  throw UserError(where, fmt::format("{}: expected a whole number, found {}", column, quote(text)));
}

StepRow csv_row(const CsvHeader& columns, const CsvRow& row) {
  columns.check(row);
  const auto text = [&](const char* column) {
    return columns.has(column) ? row.fields[columns.at(column)] : std::string();
  };
  const auto at = [&](const char* column) { return row.at(columns.at(column)); };
  StepRow read;
  read.where = row.where;
  read.batch = static_cast<int>(whole_cell(at("batch"), "batch", text("batch"), kMostSequences));
  read.prompt_tokens = whole_cell(at("context"), "context", text("context"), kMostTokens);
  if (!text("output_tokens").empty()) {
    read.output_tokens = whole_cell(at("output_tokens"), "output_tokens", text("output_tokens"), kMostTokens);
  }
  if (!text("tpot_ms").empty())
    read.tpot_s = positive_cell(at("tpot_ms"), "tpot_ms", text("tpot_ms"), kLongestMs) / 1e3;
  if (!text("ttft_ms").empty())
    read.ttft_s = positive_cell(at("ttft_ms"), "ttft_ms", text("ttft_ms"), kLongestMs) / 1e3;
  if (read.tpot_s == 0 && read.ttft_s == 0) throw UserError(row.where, "neither tpot_ms nor ttft_ms is measured");
  return read;
}

std::vector<StepRow> csv_rows(const std::string& path) {
  std::vector<StepRow> rows;
  std::optional<CsvHeader> columns;
  for (const CsvRow& row : read_csv(path, "the measured steps")) {
    if (columns) {
      rows.push_back(csv_row(*columns, row));
      continue;
    }
    columns.emplace(row);
    if (columns->has("batch") && columns->has("context") && (columns->has("tpot_ms") || columns->has("ttft_ms")))
      continue;
    throw UserError(row.where, fmt::format("expected the columns batch, context, and tpot_ms or ttft_ms; found {}",
                                           quote(fmt::format("{}", fmt::join(row.fields, ",")))));
  }
  if (rows.empty()) throw UserError({path}, "no measured steps in the file");
  return rows;
}

// One result of vLLM's `bench serve --save-result`. Between tokens its median leaves out the steps that read prompts.
StepRow vllm_row(const std::string& path) {
  const nlohmann::json file = read_json_file(path, "the measured steps");
  const auto number = [&](const char* key) {
    const bool there = file.is_object() && file.contains(key) && file.at(key).is_number();
    return there ? file.at(key).get<double>() : 0.0;
  };
  const double completed = number("completed"), batch = number("max_concurrency");
  const double gap = number("median_itl_ms") > 0 ? number("median_itl_ms") : number("mean_tpot_ms");
  const double input = number("total_input_tokens"), output = number("total_output_tokens");
  const bool whole = completed >= 1 && batch >= 1 && batch <= kMostSequences && gap > 0 && gap <= kLongestMs &&
                     input >= completed && output >= completed && input <= completed * kMostTokens &&
                     output <= completed * kMostTokens;
  if (!whole) {
    throw UserError({path},
                    "expected a result of vLLM's serving benchmark with max_concurrency, completed, "
                    "total_input_tokens, total_output_tokens, and median_itl_ms or mean_tpot_ms above 0");
  }
  StepRow row;
  row.where = {path};
  row.batch = static_cast<int>(batch);
  row.prompt_tokens = std::llround(input / completed), row.output_tokens = std::llround(output / completed);
  row.tpot_s = gap / 1e3;
  if (row.batch == 1) row.ttft_s = std::clamp(number("mean_ttft_ms"), 0.0, kLongestMs) / 1e3;
  return row;
}

}  // namespace

std::vector<StepRow> read_step_rows(const std::string& path) {
  return path.ends_with(".json") ? std::vector<StepRow>{vllm_row(path)} : csv_rows(path);
}

}  // namespace kvcast::calibrate
