#pragma once

#include <CLI/CLI.hpp>

namespace kvcast::app {

// kvcast fit evidence: published rows compared with their simulation, and the rule by which predictions follow from
// both.
void add_fit_evidence(CLI::App& fit, int& result);

}  // namespace kvcast::app
