#include "report/print.hpp"

#include <array>
#include <charconv>
#include <utility>

#include "base/error.hpp"
#include "report/figures.hpp"
#include "report/stores.hpp"
#include "report/view.hpp"

namespace kvcast::report {

namespace {

using nlohmann::json;

constexpr double kLeastWidth = 60, kMostWidth = 500;  // millimetres

}  // namespace

double parse_width(const std::string& text) {
  if (text == "single") return 85;
  if (text == "double") return 178;
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value);
  std::string unit(rest, end);
  unit.erase(0, unit.find_first_not_of(' '));
  for (const auto& [name, mm] : std::array{std::pair("mm", 1.0), std::pair("cm", 10.0), std::pair("in", 25.4)}) {
    if (failure != std::errc() || unit != name) continue;
    if (value * mm >= kLeastWidth && value * mm <= kMostWidth) return value * mm;
    throw UserError(fmt::format("--width {}: figures are {} to {} mm wide", text, kLeastWidth, kMostWidth));
  }
  throw UserError(fmt::format(
      "--width {}: expected a width with its unit (85mm, 17.8cm, 3.3in); known: single (85mm), double (178mm)", text));
}

json print_job(const std::vector<std::string>& dirs, const PrintOptions& print, const Options& options) {
  const Stores stores(dirs, options.where);
  const Assets assets = load_assets(options);
  Content content = collect(stores.sources(), Palette(assets.palette));
  const View view(print.view);
  view.filter(content);
  std::vector<ChartFile> charts = standalone_figures(assets, content, drawn_answers(assets, content.answers));
  view.set_controls(charts);
  json figures = json::array();
  for (ChartFile& figure : charts) {
    figures.push_back({{"name", figure.name}, {"spec", std::move(figure.spec)}});
  }
  return {{"program", assets.print},
          {"vega", assets.vega},
          {"theme", assets.themes.at("light")},
          {"figures", std::move(figures)},
          {"width_mm", print.width_mm},
          {"font", print.font},
          {"out", print.out}};
}

}  // namespace kvcast::report
