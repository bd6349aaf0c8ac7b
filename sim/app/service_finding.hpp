// What a sweep over services concludes: the capacity of each setting within the SLO.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/services.hpp"
#include "store/finding.hpp"

namespace kvcast::app {

class ServiceFinding {
 public:
  void add(const result::Result& result);
  bool any() const { return any_; }  // whether a result has traffic
  // Nothing without an SLO or without loads.
  std::optional<store::Finding> finding() const;

 private:
  struct Setting {
    std::string place, name;  // "h100-sxm, 8192 tokens", "snapkv, budget 2048"
  };
  std::vector<Setting> settings_;  // by the ids of the tables
  report::ServiceTables tables_;
  bool any_ = false;
};

}  // namespace kvcast::app
