// A conclusion from a sweep.
#pragma once

#include <string>

namespace kvcast::store {

struct Finding {
  std::string title;
  std::string text;    // one line for each place that is compared
  std::string detail;  // the same, or one line for all
};

}  // namespace kvcast::store
