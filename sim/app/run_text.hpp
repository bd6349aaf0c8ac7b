// A result as text: what `kvcast run` prints.
#pragma once

#include "replay/replay.hpp"
#include "result/result.hpp"
#include "study/study.hpp"

namespace kvcast::app {

// Prints every number of the table of metrics that the result has, with its 80 % interval and origin; the bottleneck of
// the step, the breakdown of its time, the owners of the memory, and the numbers of the machine that move the step
// most.
void print_result(const study::Task& task, const result::Result& result);

}  // namespace kvcast::app
