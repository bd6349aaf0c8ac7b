// The planner's page: one document that fetches only answers of this server.
#pragma once

#include <string>

#include "report/assets.hpp"

namespace kvcast::web {

std::string planner_page(const report::Assets& assets);

}  // namespace kvcast::web
