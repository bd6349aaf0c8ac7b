// The spans of a decode step: what ran when, the bytes of copies, and which operation each one waited for.
#pragma once

#include <vector>

#include "result/experiment.hpp"
#include "simulate/timed.hpp"

namespace kvcast::simulate {

// Operations that overlap the block, which the recorder must have kept in full with the block before it, in order of
// their ends. Times count from the start of the block.
std::vector<result::TimelineSpan> timeline_spans(const Recorder& recorder, const TimedSource& source,
                                                 std::size_t block);

}  // namespace kvcast::simulate
