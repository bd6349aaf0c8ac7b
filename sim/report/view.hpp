// The state of a page as its address encodes it: "context=65536&throughput_budget.axis=log".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/assets.hpp"
#include "report/content.hpp"

namespace kvcast::report {

class View {
 public:
  // Reads the part of an address after #, with or without it, as browsers write it. Throws UserError if a part is not
  // key=value.
  explicit View(const std::string& address);

  // Applies filters (model, hardware, context, batch, budget; "all" for none) and hidden series to the content's
  // defaults. Throws UserError naming the existing values.
  void filter(Content& content) const;
  // Applies controls of figures ("throughput_budget.axis=log") to the figures' signals and scales. Throws UserError
  // naming the existing figures, controls and values.
  void set_controls(std::vector<ChartFile>& figures) const;

 private:
  std::vector<std::pair<std::string, std::string>> parts_;  // key, value
};

}  // namespace kvcast::report
