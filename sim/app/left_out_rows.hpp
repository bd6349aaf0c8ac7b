// Rows of tables of scores that a fit leaves out or that contradict each other, as messages on stderr.
#pragma once

#include <span>
#include <vector>

#include "accuracy/score.hpp"

namespace kvcast::app {

// The rows that have no prediction, with the reasons.
std::vector<score::LeftOutRow> refused_rows(std::span<const accuracy::Cell> cells,
                                            std::span<const accuracy::Average> averages);

// Prints every reason once, with the lines that it holds for: "left out, mine.csv:8, 9: no policy for the method Foo".
void print_left_out(std::span<const score::LeftOutRow> rows);

// Prints the rows that state another score than an earlier row of the same table for the same setting.
void print_contradictions(std::span<const score::PublishedRow> rows);

}  // namespace kvcast::app
