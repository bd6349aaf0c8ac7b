#include "accuracy/records.hpp"

#include <algorithm>

#include "accuracy/evaluate.hpp"
#include "config/section.hpp"

namespace kvcast::accuracy {
namespace {

double budget_of(const Cell& cell) {
  const config::Node* const budget = cell.policy.parameters.find("budget");
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  return budget == nullptr ? 0 : static_cast<double>(config::read_integer(*budget, "budget", 0, kMost));
}

double mean_context(const Cell& cell) {
  double tokens = 0, weight = 0;
  for (const PromptLength& length : cell.contexts)
    tokens += length.weight * static_cast<double>(length.tokens), weight += length.weight;
  return weight > 0 ? tokens / weight : 0;
}

std::string method_of(const PublishedRow& row, const Catalogue& catalogue) {
  const MethodSpec* const method = catalogue.method(row);
  return bare_name(method == nullptr || method->methods.empty() ? row.method : method->methods.front());
}

bool in_blocks(const PublishedRow& row) { return row.context.starts_with("block=") && row.context != "block=inf"; }

evidence::ScoreRecord record_of(const Cell& cell, const Catalogue& catalogue) {
  evidence::ScoreRecord r;
  r.paper = cell.row.paper, r.table = cell.row.table, r.model = cell.model, r.group = cell.group;
  r.benchmark = bare_name(cell.row.benchmark) + (in_blocks(cell.row) ? " block" : "");
  r.task = bare_name(cell.row.task), r.method = method_of(cell.row, catalogue);
  r.context = mean_context(cell), r.budget = budget_of(cell);
  r.full = cell.full, r.simulated = cell.predicted, r.published = cell.row.value;
  return r;
}

// Returns whether `r` is in the table of `own`, or repeats its score in another table of the paper.
bool is_of_table(const evidence::ScoreRecord& r, const evidence::ScoreRecord& own) {
  if (r.paper != own.paper || r.model != own.model) return false;
  return r.table == own.table || (r.benchmark == own.benchmark && r.task == own.task && r.method == own.method &&
                                  r.context == own.context && r.budget == own.budget);
}

}  // namespace

std::vector<evidence::ScoreRecord> records_of(const ScoreComparison& plan, const Catalogue& catalogue) {
  std::vector<evidence::ScoreRecord> records;
  for (const Cell& cell : plan.cells) {
    if (cell.refused.empty() && cell.full > 0) records.push_back(record_of(cell, catalogue));
  }
  return records;
}

void add_lookups(ScoreComparison& plan, const std::vector<evidence::ScoreRecord>& records, const Catalogue& catalogue,
                 const RecallMap& link) {
  std::vector<Cell> all = all_cells(plan);
  for (Cell& cell : all) {
    if (!cell.refused.empty() || cell.full <= 0) continue;
    const evidence::ScoreRecord own = record_of(cell, catalogue);
    cell.lookup =
        evidence::look_up(records, own, [&own](const evidence::ScoreRecord& r) { return is_of_table(r, own); });
  }
  settle(plan, std::move(all), link);
}

void estimate(ScoreComparison& plan, const evidence::Predictor& predictor, const Catalogue& catalogue,
              const RecallMap& link) {
  add_lookups(plan, predictor.records(), catalogue, link);
  std::vector<Cell> all = all_cells(plan);
  for (Cell& cell : all) {
    if (!cell.refused.empty() || cell.full <= 0) continue;
    const evidence::ScoreRecord own = record_of(cell, catalogue);
    const evidence::Prediction p =
        predictor.predict(own, [&own](const evidence::ScoreRecord& r) { return is_of_table(r, own); });
    cell.simulated = cell.predicted;
    // The uncertainty of the full score of truncated prompts also widens these intervals.
    cell.predicted = p.points, cell.low = p.low * cell.full_low;
    cell.high = std::min(100.0, p.high * cell.full_high);
    cell.common = p.common;
  }
  settle(plan, std::move(all), link);
}

}  // namespace kvcast::accuracy
