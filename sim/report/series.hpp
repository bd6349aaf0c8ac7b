// Assignment of experiments to the lines of a chart, and the style of each line.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "report/palette.hpp"
#include "report/table.hpp"
#include "result/result.hpp"

namespace kvcast::report {

// The key that distinguishes the stores of a comparison.
inline constexpr const char* kStoreKey = "store";

// Returns whether the page has an axis or a filter for the key, so that it makes no variants.
bool is_axis(const std::string& key);

// A series is a policy in one variant. The variant lists the keys that a sweep changes other than the filters of the
// page (model, hardware, context, batch, budget): "split_factor 0.3", "speculation false". A key that has one value
// throughout a policy's rows says nothing about the policy and is left out. Seeds make replicas of one series.
class SeriesNames {
 public:
  // Takes three passes over the subjects in reading order, because any row may add a key that distinguishes earlier
  // rows: the keys that the sweep changes; the values that each policy has under them; then naming.
  void learn_keys(const result::Subject& subject);
  void learn_values(const result::Subject& subject);
  // Call it between the first two passes. If all budgets are solved by `match:` for the same quantity, the page shows
  // them by the requested cost, because the solved budgets differ between policies of equal cost; the costs then make
  // no variants.
  void choose_cost();
  // The quantity that `match:` requested if budgets are shown by it: "bytes read". Otherwise empty.
  const std::string& cost() const { return cost_; }
  // The budget, or the requested cost. Policies without a budget have neither.
  std::optional<double> budget_of(const result::Subject& subject, result::Status status) const;

  // Returns the policy's name, "unnamed" if the configuration lacks one.
  static std::string policy_of(const result::Subject& subject);
  std::string variant_of(const result::Subject& subject) const;
  // Returns "seed 2" for an experiment whose sweep has several seeds; otherwise empty.
  static std::string replica_of(const result::Subject& subject);
  static std::string join(const std::string& policy, const std::string& variant);

  // One row per series in order of appearance: series, policy, variant, label, order, color, symbol, dash ("4,2"), and
  // preferred = 1 for the first variant of its policy in each store, which the page shows at first. The label is the
  // series' name shortened: "rocketkv, 0.3" if its variants differ in one key, "freekv, no correction".
  Table table(Palette& palette) const;

  // Records that the subject's series has at least one row; call it in reading order.
  void appear(const result::Subject& subject);

 private:
  struct Series {
    std::string policy, variant, label, store;
  };
  std::vector<std::string> differing_keys(const std::string& policy) const;
  std::string label_of(const result::Subject& subject) const;

  std::set<std::string> match_keys_;  // "match.bytes_read"; "" represents written budgets
  std::string match_key_, cost_;
  std::vector<std::string> keys_;                                               // in order of appearance
  std::map<std::string, std::map<std::string, std::set<std::string>>> values_;  // policy → key → values; "": none
  std::vector<Series> series_;
};

}  // namespace kvcast::report
