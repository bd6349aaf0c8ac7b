#include "app/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <optional>

namespace kvcast::app {
namespace {
constexpr int kBar = 30;
using std::chrono::milliseconds;
constexpr milliseconds kBetweenDrawings{100}, kBeforeFirstLine{3000}, kBetweenLines{20000};
}  // namespace

std::string format_duration(double seconds) {
  const auto s = static_cast<std::int64_t>(std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s % 3600 / 60);
}

Progress::Progress(std::string title, std::int64_t total, std::int64_t done)
    : title_(std::move(title)),
      total_(total),
      done_(done),
      at_start_(done),
      terminal_(isatty(STDERR_FILENO) == 1),
      begin_(std::chrono::steady_clock::now()),
      drawn_(terminal_ ? begin_ - kBetweenDrawings : begin_ - kBetweenLines + kBeforeFirstLine) {}

Progress::~Progress() {
  if (terminal_) fmt::print(stderr, "\r\033[K");
}

void Progress::advance(std::int64_t pieces, const std::string& now_at) {
  const std::lock_guard lock(mutex_);
  done_ += pieces;
  const auto now = std::chrono::steady_clock::now();
  if (!started_) started_ = true, begin_ = now, at_start_ = done_;
  const bool due = now - drawn_ >= (terminal_ ? kBetweenDrawings : kBetweenLines);
  if (!due && (!terminal_ || done_ < total_)) return;
  drawn_ = now;
  draw(now_at);
}

// Returns "2 min 05 s left", at the average speed since the first piece, which prepares what the others share. Empty
// until five pieces and one in twenty are done.
std::string Progress::left() const {
  const std::int64_t fresh = done_ - at_start_;
  if (fresh < 5 || 20 * fresh < total_ - at_start_) return "";
  const double elapsed = std::chrono::duration<double>(drawn_ - begin_).count();
  return ", " + format_duration(elapsed / static_cast<double>(fresh) * static_cast<double>(total_ - done_)) + " left";
}

void Progress::draw(const std::string& now_at) {
  if (!terminal_) {
    fmt::print(stderr, "{}: {} of {}{}{}{}\n", title_, done_, total_, left(), now_at.empty() ? "" : "; last ", now_at);
    return;
  }
  const auto filled = static_cast<int>(total_ == 0 ? kBar : kBar * done_ / total_);
  fmt::print(stderr, "\r\033[K{} [{}{}] {}/{}{}  {}", title_, std::string(static_cast<std::size_t>(filled), '='),
             std::string(static_cast<std::size_t>(kBar - filled), ' '), done_, total_, left(), now_at);
  std::fflush(stderr);
}

std::function<void(std::int64_t, std::int64_t)> progress_of(std::string title) {
  struct Shown {
    std::mutex mutex;
    std::optional<Progress> progress;
    std::int64_t done = 0;
  };
  return [title = std::move(title), shown = std::make_shared<Shown>()](std::int64_t, std::int64_t total) {
    const std::lock_guard lock(shown->mutex);
    if (!shown->progress) shown->progress.emplace(title, total, 0);
    shown->progress->advance(1, "");
    if (++shown->done == total) shown->progress.reset(), shown->done = 0;
  };
}

LongWait::LongWait(std::string what) : what_(std::move(what)), thread_([this] { speak(); }) {}

LongWait::~LongWait() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LongWait::speak() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  for (auto due = begin + kBeforeFirstLine; !changed_.wait_until(lock, due, [this] { return over_; });
       due += kBetweenLines) {
    const std::chrono::duration<double> so_far = due - begin;
    fmt::print(stderr, "{}: {} so far\n", what_, format_duration(so_far.count()));
  }
}

}  // namespace kvcast::app
