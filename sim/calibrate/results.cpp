#include "calibrate/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/quote.hpp"
#include "calibrate/json_file.hpp"

namespace kvcast::calibrate {
namespace {

using nlohmann::json;
constexpr const char* kSchema = "kvcast-kernels/1";

[[noreturn]] void refuse(const std::string& path, const std::string& what) { throw UserError({path, 0, 0}, what); }

const json& member(const std::string& path, const json& map, const char* key, const std::string& where) {
  if (!map.is_object() || !map.contains(key)) refuse(path, fmt::format("{}: \"{}\" is missing", where, key));
  return map[key];
}

std::string text_of(const std::string& path, const json& map, const char* key, const std::string& where) {
  const json& value = member(path, map, key, where);
  if (!value.is_string()) refuse(path, fmt::format("{}: {} is no text", where, key));
  return value.get<std::string>();
}

void read_mixed(const json& map, std::map<std::string, double>& numbers, std::map<std::string, std::string>& words) {
  for (const auto& [key, value] : map.items()) {
    if (value.is_number()) numbers[key] = value.get<double>();
    if (value.is_string()) words[key] = value.get<std::string>();
  }
}

// Throws unless the summary of a case's samples can be one of times.
void check_times(const std::string& path, const json& times, const std::string& where) {
  constexpr double kLongest = 1e6, kRounding = 1 + 1e-9;  // seconds; quartiles are interpolated
  for (const char* key : {"min", "q1", "median", "q3", "max", "mean"}) {
    const auto at = times.find(key);
    if (at == times.end()) continue;
    if (!at->is_number() || !(at->get<double>() > 0)) {
      refuse(path, fmt::format("{}: the {} time is no positive number", where, key));
    }
    if (at->get<double>() <= kLongest) continue;
    refuse(path, fmt::format("{}: the {} time is {} s, the limit is {} s", where, key, at->get<double>(), kLongest));
  }
  const double median = times["median"].get<double>();
  const double q1 = times.value("q1", median), q3 = times.value("q3", median);
  if (q1 <= kRounding * median && median <= kRounding * q3) return;
  refuse(path, fmt::format("{}: the quartiles of the times are out of order: {}, {}, {} s", where, q1, median, q3));
}

// Throws unless the number, if the map has it, is a whole one from 1.
void check_whole(const std::string& path, const json& map, const char* key, const std::string& where) {
  const auto at = map.find(key);
  if (at == map.end()) return;
  if (at->is_number() && at->get<double>() >= 1 && at->get<double>() == std::floor(at->get<double>())) return;
  refuse(path, fmt::format("{}: {} must be a whole number from 1, found {}", where, key, at->dump()));
}

// Returns false for a row that must not be used.
bool read_row(const std::string& path, const json& entry, std::size_t index, MeasuredRow& row) {
  const std::string where = fmt::format("row {}", index);
  row.file = path;
  row.bench = text_of(path, entry, "bench", where);
  row.mode = text_of(path, entry, "mode", where);
  const json& axes = member(path, entry, "axes", where);
  read_mixed(axes, row.numbers, row.words);
  std::map<std::string, std::string> ignored;
  read_mixed(member(path, entry, "work", where), row.work, ignored);
  if (entry.contains("skip_reason") && !entry["skip_reason"].is_null()) return false;
  const json& time = member(path, entry, "time_s", where);
  if (time.is_null()) return false;
  const json& median = member(path, time, "median", where);
  check_times(path, time, where);
  check_whole(path, entry, "n", where);
  check_whole(path, axes, "threads", where);
  row.passes = {median.get<double>()};
  const auto noise = entry.find("noise");
  if (noise != entry.end() && noise->is_number() && noise->get<double>() > 0) row.noise = noise->get<double>();
  return true;
}

// Adds the row, or its time to the passes of an existing row.
void add(MeasuredRow row, std::map<std::string, std::size_t>& indices, std::vector<MeasuredRow>& rows) {
  const auto [at, is_new] = indices.try_emplace(row.id(), rows.size());
  if (is_new) {
    rows.push_back(std::move(row));
  } else {
    rows[at->second].passes.push_back(row.passes.front());
  }
}

// Median, or the geometric mean of the two middle values.
double middle(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : std::sqrt(values[half - 1] * values[half]);
}

std::vector<double> every_other(const std::vector<double>& values, std::size_t first) {
  std::vector<double> out;
  for (std::size_t i = first; i < values.size(); i += 2) out.push_back(values[i]);
  return out;
}

// Sets the row's time, and the difference that half of the passes would have made.
void settle(MeasuredRow& row) {
  row.seconds = middle(row.passes);
  if (row.passes.size() < 2) return;
  const double one = middle(every_other(row.passes, 0)), other = middle(every_other(row.passes, 1));
  row.spread = std::max(one, other) / std::min(one, other) - 1;
}

double number_of(const MeasuredRow& row, const std::string& axis) {
  const auto at = row.numbers.find(axis);
  if (at == row.numbers.end()) refuse(row.file, fmt::format("{}: no number \"{}\" among the axes", row.id(), axis));
  return at->second;
}

}  // namespace

std::string MeasuredRow::id() const {
  std::string text = bench;
  for (const auto& [key, value] : words) text += fmt::format(" {}={}", key, value);
  for (const auto& [key, value] : numbers) text += fmt::format(" {}={}", key, value);
  return text + " " + mode;
}

double MeasuredRow::number(const std::string& axis) const {
  const double value = number_of(*this, axis);
  if (!(value > 0)) refuse(file, fmt::format("{}: {} is not positive", id(), axis));
  return value;
}

bool MeasuredRow::flag(const std::string& axis) const { return number_of(*this, axis) != 0; }

const std::string& MeasuredRow::word(const std::string& axis) const {
  const auto at = words.find(axis);
  if (at == words.end()) refuse(file, fmt::format("{}: no word \"{}\" among the axes", id(), axis));
  return at->second;
}

double MeasuredRow::of_work(const std::string& name) const {
  const auto at = work.find(name);
  if (at == work.end() || !(at->second >= 0)) refuse(file, fmt::format("{}: its work states no {}", id(), name));
  return at->second;
}

namespace {

// Reads a file; times of cases that occurred before become further passes. Rows are not settled.
void read_into(Results& results, const std::string& path, std::map<std::string, std::size_t>& indices) {
  const json document = read_json_file(path, "the results");
  if (text_of(path, document, "schema", "results") != kSchema) refuse(path, fmt::format("schema is not {}", kSchema));
  Results file;
  read_mixed(member(path, document, "environment", "results"), file.quantities, file.texts);
  if (results.file.empty()) {
    results.file = path, results.quantities = file.quantities, results.texts = file.texts;
  }
  for (const char* key : {"program", "device", "device_uuid", "host_cpu"}) {
    if (file.texts[key] == results.texts[key]) continue;
    refuse(path, fmt::format("{} is \"{}\", but \"{}\" in {}: results of one machine are fitted together", key,
                             file.texts[key], results.texts[key], results.file));
  }
  const json& rows = member(path, document, "rows", "results");
  if (!rows.is_array()) refuse(path, "rows: expected a list");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    MeasuredRow row;
    if (read_row(path, rows[i], i, row)) {
      add(std::move(row), indices, results.rows);
    } else {
      results.skipped.push_back(std::move(row));
    }
  }
}

}  // namespace

std::string unknown_benches(const Results& results) {
  static const std::set<std::string> known = {"centroid_recall",
                                              "convert",
                                              "copy_beside_stream",
                                              "copy_turns",
                                              "cpu_dram",
                                              "cpu_fork_join",
                                              "cpu_gather_dot",
                                              "cpu_lsh_lookup",
                                              "cpu_overlap",
                                              "cpu_product",
                                              "cpu_sparse_attention",
                                              "cpu_topk",
                                              "decode_attention",
                                              "dim_score",
                                              "gemm",
                                              "hbm_gather",
                                              "hbm_stream",
                                              "host_copy",
                                              "host_sync",
                                              "index_scores",
                                              "key_rebuild",
                                              "keydiff",
                                              "kivi_attention",
                                              "launch_chain",
                                              "lse_merge",
                                              "lsh_hash",
                                              "mixed_attention",
                                              "page_score",
                                              "page_summary",
                                              "plan_attention",
                                              "prefill_attention",
                                              "query_similarity",
                                              "ragged_attention",
                                              "snapkv_score",
                                              "sparse_attention",
                                              "topk",
                                              "zero_copy_gather"};
  std::map<std::string, int> unknown;
  for (const MeasuredRow& row : results.rows) {
    if (!known.contains(row.bench)) ++unknown[row.bench];
  }
  std::string text;
  for (const auto& [bench, rows] : unknown) {
    text +=
        fmt::format("{}{} ({} {})", text.empty() ? "" : ", ", escape_controls(bench), rows, rows == 1 ? "row" : "rows");
  }
  return text;
}

Results read_results(const std::string& path) { return read_results(std::vector<std::string>{path}); }

Results read_results(const std::vector<std::string>& paths) {
  Results results;
  std::map<std::string, std::size_t> indices;
  for (const std::string& path : paths) read_into(results, path, indices);
  for (MeasuredRow& row : results.rows) settle(row);
  return results;
}

}  // namespace kvcast::calibrate
