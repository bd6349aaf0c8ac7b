#include "report/measures.hpp"

namespace kvcast::report {

std::vector<const result::Metric*> page_metrics() {
  std::vector<const result::Metric*> all;
  for (const result::Metric& metric : result::all_metrics()) {
    if (!metric.alias.empty() && metric.alias.find('.') == std::string::npos) all.push_back(&metric);
  }
  return all;
}

nlohmann::json page_metrics_json() {
  nlohmann::json list = nlohmann::json::array();
  for (const result::Metric* const metric : page_metrics()) {
    list.push_back({{"field", metric->alias},
                    {"path", metric->path},
                    {"label", metric->label},
                    {"short", metric->brief},
                    {"unit", metric->display.unit},
                    {"scale", metric->display.scale},
                    {"format", metric->display.format},
                    {"table", !metric->brief.empty()}});
  }
  return list;
}

}  // namespace kvcast::report
