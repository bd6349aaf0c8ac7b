#include "web/page.hpp"

#include "report/page.hpp"

namespace kvcast::web {

std::string planner_page(const report::Assets& assets) {
  nlohmann::json charts = nlohmann::json::object();
  for (const report::ChartFile& chart : assets.planner.charts) charts[chart.name] = chart.spec;
  const nlohmann::json data = {{"charts", charts}, {"themes", assets.themes}, {"palette", assets.palette}};
  return report::fill(assets.planner.page, {{"{{style}}", assets.planner.style},
                                            {"{{data}}", report::inside_script(report::dump(data))},
                                            {"{{vega}}", assets.vega},
                                            {"{{script}}", assets.planner.script}});
}

}  // namespace kvcast::web
