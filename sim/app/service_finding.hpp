// The conclusion of a sweep over services: the capacity of each setting within the SLO.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run.hpp"
#include "report/services.hpp"
#include "store/finding.hpp"

namespace kvcast::app {

class ServiceFinding {
 public:
  void add(const result::Result& result);
  bool any() const { return any_; }  // whether a result has traffic
  // Nothing without an SLO or without loads. Settings below the floor come last, and the text says so.
  std::optional<store::Finding> finding(const config::ScoreChoice& choice) const;

 private:
  struct Setting {
    std::string place, name;           // "h100-sxm, 8192 tokens", "snapkv, budget 2048"
    std::optional<double> score = {};  // share of that with full KV; none: no benchmark, or it cannot be predicted
    bool oracle = false;
  };
  std::vector<Setting> settings_;  // by the ids of the tables
  report::ServiceTables tables_;
  bool any_ = false;
};

}  // namespace kvcast::app
