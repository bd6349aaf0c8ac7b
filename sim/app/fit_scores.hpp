// kvcast fit scores: the table of benchmark scores that need no replay.
#pragma once

#include <CLI/CLI.hpp>

namespace kvcast::app {

void add_fit_scores(CLI::App& fit, int& result);

}  // namespace kvcast::app
