// The experiments of a store that a page shows: all, those with settings that the user names, or, of a large sweep,
// those with the first value of as few settings as bring them below a limit.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store/store.hpp"

namespace kvcast::report {

// A page of so many experiments has some 6 MB.
inline constexpr std::size_t kMostExperiments = 5000;

struct ReportPart {
  // Settings that all shown experiments have: a key of the configuration and a value as experiments.csv has it, empty
  // for experiments that do not set the key.
  std::vector<std::pair<std::string, std::string>> where;
  std::map<std::string, std::vector<std::string>> values;  // of these keys in the whole store, in reading order
  std::set<std::string> keys;                              // of the shown experiments, unless `where` is empty
  std::size_t of = 0;                                      // experiments in the store
  std::vector<std::string> settings;                       // keys that any of these sets, in alphabetical order

  bool is_all() const { return where.empty(); }
  bool shows(const std::string& key) const { return is_all() || keys.contains(key); }
};

// Reads KEY=VALUE. Throws UserError for another form.
std::vector<std::pair<std::string, std::string>> parse_where(const std::vector<std::string>& texts);

// Experiments with these settings; without any, those of a page of at most `most` experiments, if settings can bring
// them there. Throws UserError for a key or a value that the store lacks, with those that it has.
ReportPart part_of(const store::Store& store, const std::vector<std::pair<std::string, std::string>>& where,
                   std::size_t most = kMostExperiments);

}  // namespace kvcast::report
