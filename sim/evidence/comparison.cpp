#include "evidence/comparison.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "evidence/estimator.hpp"

namespace kvcast::evidence {
namespace {

std::string table_of(const Record& r) { return fmt::format("{}|{}|{}|{}", r.paper, r.table, r.model, r.benchmark); }

std::string share_of_prompt(const Record& r) { return fmt::format("{:.2f}", r.budget_share()); }

std::string tokens(const Record& r) { return fmt::format("{:.0f}", r.budget); }

}  // namespace

Comparisons::Comparisons(const std::vector<Record>& records) {
  struct Stated {
    std::set<std::string> shares, tokens;  // with the method
  };
  std::map<std::string, Stated> tables;
  for (const Record& r : records) {
    Stated& stated = tables[table_of(r)];
    stated.shares.insert(r.method + share_of_prompt(r)), stated.tokens.insert(r.method + tokens(r));
  }
  for (const auto& [table, stated] : tables) {
    if (stated.shares.size() < stated.tokens.size()) in_shares_.insert(table);
  }
}

std::string Comparisons::of(const Record& r) const {
  const std::string table = table_of(r);
  const std::string length = family_of(r.benchmark) == Family::kRuler ? fmt::format("{:.0f}", r.context) : "";
  return fmt::format("{}|{}|{}", table, length, in_shares_.contains(table) ? share_of_prompt(r) + " of it" : tokens(r));
}

}  // namespace kvcast::evidence
