// The planner's page: one document without anything to fetch but the answers of this server.
#pragma once

#include <string>

namespace kvcast::serve {

// UserError where a part of the page is missing, or Vega's package.
std::string planner_page();

}  // namespace kvcast::serve
