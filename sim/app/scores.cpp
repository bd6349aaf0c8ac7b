#include "app/scores.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "app/progress.hpp"
#include "study/scoring.hpp"

namespace kvcast::app {

void ask_for_scores(study::StudyOptions& options, study::Scores scores) {
  options.scores = scores;
  std::string failure;
  options.score_replays = study::score_cache_file(failure);
  if (!failure.empty()) {
    fmt::print(stderr, "warning: replays for benchmark scores are not kept for the next run: {}\n", failure);
  }
  options.score_advance = progress_of("Replaying for scores");
}

std::string replay_folder(const study::StudyOptions& options) {
  if (options.score_replays.empty()) return "";
  return std::filesystem::path(options.score_replays).replace_extension("").string();
}

}  // namespace kvcast::app
