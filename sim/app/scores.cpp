#include "app/scores.hpp"

#include <fmt/format.h>

#include <memory>
#include <mutex>

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
  struct Shown {
    std::mutex mutex;
    std::unique_ptr<Progress> progress;
  };
  options.score_advance = [shown = std::make_shared<Shown>()](std::int64_t done, std::int64_t total) {
    const std::lock_guard lock(shown->mutex);
    if (!shown->progress) shown->progress = std::make_unique<Progress>("Replaying for scores", total, 0);
    shown->progress->advance(1, "");
    if (done == total) shown->progress.reset();
  };
}

}  // namespace kvcast::app
