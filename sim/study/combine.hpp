// Combines the results of one run on several traces.
#pragma once

#include <vector>

#include "result/result.hpp"
#include "simulate/experiment.hpp"

namespace kvcast::study {

// Combines the results of one point on each of its traces, in their order; at least one. A single result is unchanged.
//
// Times, traffic, attributions and accuracy proxies are means over the traces, and throughput is the batch over the
// mean step time. Percentiles are means too: those of a typical one of the texts, not percentiles over all of them.
// Memory peaks are the largest, and the experiment does not fit if it does not fit on some trace. The simulation's own
// costs are summed.
//
// `effects`: those that the results have. The effect of a source is the mean of its effects on the traces, weighted by
// time: the ratio of the mean shifted time to the mean time. That of kTraceSample is an 80 % prediction interval of the
// time on another text of these kinds. The interval of the task score covers the mean over all such texts.
result::Result combine(std::vector<result::Result> on_traces, simulate::Effects effects);

}  // namespace kvcast::study
