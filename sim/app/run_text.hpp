// A result as text: what `kvcast run` prints.
#pragma once

#include "replay/replay.hpp"
#include "result/result.hpp"
#include "study/study.hpp"

namespace kvcast::app {

// Every number of the table of metrics that the result has, with its 80 % interval and origin; what limits the step,
// where its time goes, who owns the memory, and which numbers of the machine move the step most.
void print_result(const study::Task& task, const result::Result& result);

}  // namespace kvcast::app
