// Figures for print: at a stated width, with an embedded font.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/report.hpp"

namespace kvcast::report {

struct PrintOptions {
  std::string out;  // folder of the figures, which exists
  double width_mm = 85;
  std::string font = "sans-serif";  // a family that fontconfig knows
  std::string view;                 // see View; empty: the page's initial state
};

// Parses "85mm", "17.8 cm", "3.3in", or "single" (85 mm) and "double" (178 mm) for the columns of a paper. Throws
// UserError for other texts and for widths that no figure fits in.
double parse_width(const std::string& text);

// The input of the Node program reports/print/print.js: {vega: a script, theme, figures: [{name, spec}], width_mm,
// font, out}, and `program`, the path of that program. Throws UserError as write_report does.
nlohmann::json print_job(const std::vector<std::string>& dirs, const PrintOptions& print, const Options& options = {});

}  // namespace kvcast::report
