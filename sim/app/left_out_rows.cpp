#include "app/left_out_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace kvcast::app {

std::vector<score::LeftOutRow> refused_rows(std::span<const accuracy::Cell> cells,
                                            std::span<const accuracy::Average> averages) {
  std::vector<score::LeftOutRow> rows;
  const auto add = [&rows](const score::PublishedRow& row, const std::string& refused) {
    // The line is printed before the reason, which may begin with it as well.
    const std::string place = format_location(row.where);
    if (!refused.empty())
      rows.push_back({row.where, refused.starts_with(place) ? refused.substr(place.size()) : refused});
  };
  for (const accuracy::Cell& cell : cells) add(cell.row, cell.refused);
  for (const accuracy::Average& average : averages) add(average.row, average.refused);
  return rows;
}

void print_left_out(std::span<const score::LeftOutRow> rows) {
  constexpr std::size_t kMost = 12;                                         // lines that are listed for a reason
  std::map<std::pair<std::string, std::string>, std::vector<int>> reasons;  // → lines, by file and reason
  for (const score::LeftOutRow& row : rows) reasons[{row.where.file, row.reason}].push_back(row.where.line);
  for (auto& [place, lines] : reasons) std::ranges::sort(lines);
  std::vector<std::pair<std::pair<std::string, std::string>, std::vector<int>>> in_order(reasons.begin(),
                                                                                         reasons.end());
  std::ranges::sort(in_order, [](const auto& a, const auto& b) {
    return std::tie(a.first.first, a.second) < std::tie(b.first.first, b.second);
  });
  for (const auto& [place, of_reason] : in_order) {
    const std::size_t listed = std::min(kMost, of_reason.size());
    fmt::print(stderr, "left out, {}:{}{}: {}\n", place.first,
               fmt::join(of_reason.begin(), of_reason.begin() + static_cast<std::ptrdiff_t>(listed), ", "),
               listed < of_reason.size() ? fmt::format(" and {} more", of_reason.size() - listed) : "", place.second);
  }
}

void print_contradictions(std::span<const score::PublishedRow> rows) {
  std::map<std::vector<std::string>, const score::PublishedRow*> first;  // by setting
  for (const score::PublishedRow& row : rows) {
    const auto [at, is_new] = first.try_emplace(
        {row.where.file, row.paper, row.table, score::bare_name(row.model), score::bare_name(row.benchmark),
         row.context, score::bare_name(row.task), score::bare_name(row.method), row.budget, row.budget_unit},
        &row);
    if (is_new || at->second->value == row.value) continue;
    fmt::print(stderr, "{}warning: {} points, but line {} has {} for the same setting; {}\n",
               format_location(row.where), row.value, at->second->where.line, at->second->value,
               accuracy::is_full(row) ? "the earlier row is used" : "both rows are used");
  }
}

}  // namespace kvcast::app
