// What a page shows, as its address says it: "context=65536&throughput_budget.axis=log".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/assets.hpp"
#include "report/content.hpp"

namespace kvcast::report {

class View {
 public:
  // The part of an address behind #, with or without it, as browsers write it. UserError where a part is no key=value.
  explicit View(const std::string& address);

  // Filters (model, hardware, context, batch, budget; "all" for none) and hidden series, into the content's defaults.
  // UserError naming the values that there are.
  void filter(Content& content) const;
  // Controls of figures ("throughput_budget.axis=log"), into the figures' signals and scales. UserError naming the
  // figures, controls and values that there are.
  void set_controls(std::vector<Chart>& figures) const;

 private:
  std::vector<std::pair<std::string, std::string>> parts_;  // key, value
};

}  // namespace kvcast::report
