// Benchmark scores in commands: where their replays are kept, and how far they are.
#pragma once

#include "study/study.hpp"

namespace kvcast::app {

// Asks a study for scores. Replays are kept between runs; where they cannot be, a warning on stderr says so.
void ask_for_scores(study::StudyOptions& options, study::Scores scores);

}  // namespace kvcast::app
