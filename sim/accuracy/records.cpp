#include "accuracy/records.hpp"

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

std::string method_of(const Row& row, const Catalogue& catalogue) {
  const MethodSpec* const method = catalogue.method(row);
  return bare_name(method == nullptr || method->methods.empty() ? row.method : method->methods.front());
}

bool in_blocks(const Row& row) { return row.context.starts_with("block=") && row.context != "block=inf"; }

}  // namespace

std::vector<evidence::Record> records_of(const Plan& plan, const Catalogue& catalogue) {
  std::vector<evidence::Record> records;
  for (const Cell& cell : plan.cells) {
    if (!cell.refused.empty() || cell.full <= 0) continue;
    evidence::Record& r = records.emplace_back();
    r.paper = cell.row.paper, r.table = cell.row.table, r.model = cell.model;
    r.benchmark = bare_name(cell.row.benchmark) + (in_blocks(cell.row) ? " block" : "");
    r.task = bare_name(cell.row.task), r.method = method_of(cell.row, catalogue);
    r.context = mean_context(cell), r.budget = budget_of(cell);
    r.full = cell.full, r.simulated = cell.predicted, r.published = cell.row.value;
  }
  return records;
}

}  // namespace kvcast::accuracy
