// Benchmark scores in commands: the cache of their replays, and their progress.
#pragma once

#include <string>

#include "study/study.hpp"

namespace kvcast::app {

// Requests scores from a study. Replays are kept between runs; if they cannot be, a warning on stderr says so.
void ask_for_scores(study::StudyOptions& options, study::Scores scores);

// The folder beside the file of replays for scores in which other replays are kept; empty if there is no such file.
std::string replay_folder(const study::StudyOptions& options);

}  // namespace kvcast::app
