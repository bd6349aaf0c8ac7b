#include "calibrate/points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/csv.hpp"
#include "base/quote.hpp"

namespace kvcast::calibrate {
namespace {

constexpr double kLongestMicroseconds = 1e12, kMostOfACount = 1e15;

class Table {
 public:
  explicit Table(const CsvRow& header) : columns_(header) {
    attention_ = has({"batch", "ctx", "n_q", "n_kv", "head_dim"});
    if (!has({"device", "framework", "latency_us"}) || !(attention_ || has({"m", "n", "k"}))) {
      throw UserError(header.where,
                      fmt::format("expected the columns device, framework, latency_us and batch, ctx, n_q, n_kv, "
                                  "head_dim or m, n, k; found {}",
                                  quote(fmt::format("{}", fmt::join(header.fields, ",")))));
    }
  }

  MeasuredPoint read(const CsvRow& row) const {
    columns_.check(row);
    MeasuredPoint point;
    point.where = row.where;
    point.device = row.fields[columns_.at("device")];
    point.framework = row.fields[columns_.at("framework")];
    if (has({"kernel"})) point.kernel = row.fields[columns_.at("kernel")];
    if (has({"held_out"})) point.held_out = flag(row, "held_out");
    point.seconds = number(row, "latency_us", kLongestMicroseconds) * 1e-6;
    point.op.label = "measured point";
    if (attention_) {
      const double batch = count(row, "batch"), ctx = count(row, "ctx"), kv = count(row, "n_kv");
      const double group = count(row, "n_q") / kv;
      if (group != std::floor(group)) {
        throw UserError(row.at(columns_.at("n_q")), "the query heads do not divide into the KV heads");
      }
      point.op.kind = graph::Kind::kAttention;
      point.op.work = graph::DecodeAttention{.rows = batch * kv,
                                             .group = group,
                                             .head_dim = count(row, "head_dim"),
                                             .tokens = batch * kv * ctx,
                                             .longest = ctx,
                                             .warm = !(has({"cold"}) && flag(row, "cold"))};
    } else {
      point.op.kind = graph::Kind::kGemm;
      point.op.work = graph::Gemm{count(row, "m"), count(row, "n"), count(row, "k")};
    }
    return point;
  }

 private:
  bool has(std::initializer_list<const char*> names) const {
    return std::ranges::all_of(names, [this](const char* name) { return columns_.has(name); });
  }

  bool flag(const CsvRow& row, const char* column) const {
    const std::string& text = row.fields[columns_.at(column)];
    if (text != "0" && text != "1") {
      throw UserError(row.at(columns_.at(column)), fmt::format("{}: expected 0 or 1, found \"{}\"", column, text));
    }
    return text == "1";
  }

  double number(const CsvRow& row, const char* column, double limit) const {
    const std::string& text = row.fields[columns_.at(column)];
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool infinite = error == std::errc::result_out_of_range && text.find('-') == std::string::npos;
    if (infinite || value > limit) {
      throw UserError(row.at(columns_.at(column)),
                      fmt::format("{}: {} is above the limit, {:g}", column, quote(text), limit));
    }
    if (error != std::errc() || end != text.data() + text.size() || !(value > 0)) {
      throw UserError(row.at(columns_.at(column)),
                      fmt::format("{}: expected a positive number, found {}", column, quote(text)));
    }
    return value;
  }

  double count(const CsvRow& row, const char* column) const {
    const double value = number(row, column, kMostOfACount);
    if (value == std::floor(value)) return value;
    throw UserError(row.at(columns_.at(column)), fmt::format("{}: expected a whole number, found {}", column,
                                                             quote(row.fields[columns_.at(column)])));
  }

  CsvHeader columns_;
  bool attention_ = false;
};

}  // namespace

double MeasuredPoint::kv_bytes() const {
  const auto* work = std::get_if<graph::DecodeAttention>(&op.work);
  return work == nullptr ? 0 : 2 * work->tokens * work->head_dim * work->element_bytes;
}

double repeated_bytes(const MeasuredPoint& point) {
  if (point.attention()) return point.kv_bytes();
  const auto& gemm = std::get<graph::Gemm>(point.op.work);
  return gemm.n * gemm.k * gemm.element_bytes;
}

bool beyond_cache(const MeasuredPoint& point, double l2_capacity) { return repeated_bytes(point) > 2 * l2_capacity; }

double weight_of(const MeasuredPoint& point, double l2_capacity) {
  return point.weight * (beyond_cache(point, l2_capacity) ? 3 : 1);
}

std::vector<MeasuredPoint> read_points(const std::string& path) {
  std::optional<Table> table;
  std::vector<MeasuredPoint> points;
  for (const CsvRow& row : read_csv(path, "the points")) {
    if (!table) {
      table.emplace(row);
    } else {
      points.push_back(table->read(row));
    }
  }
  if (points.empty()) throw UserError({path, 0, 0}, "no points in the file");
  return points;
}

}  // namespace kvcast::calibrate
