#include "app/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

namespace kvcast::app {
namespace {
constexpr int kBar = 30;
constexpr auto kBetweenDrawings = std::chrono::milliseconds(100);
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
      drawn_(begin_ - kBetweenDrawings) {}

Progress::~Progress() {
  if (terminal_) fmt::print(stderr, "\r\033[K");
}

void Progress::advance(std::int64_t pieces, const std::string& now_at) {
  const std::lock_guard lock(mutex_);
  done_ += pieces;
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_ || (now - drawn_ < kBetweenDrawings && done_ < total_)) return;
  drawn_ = now;
  draw(now_at);
}

void Progress::draw(const std::string& now_at) {
  const double elapsed = std::chrono::duration<double>(drawn_ - begin_).count();
  const std::int64_t fresh = done_ - at_start_;
  const std::string eta =
      fresh == 0 ? ""
                 : ", " + format_duration(elapsed / static_cast<double>(fresh) * static_cast<double>(total_ - done_)) +
                       " left";
  const auto filled = static_cast<int>(total_ == 0 ? kBar : kBar * done_ / total_);
  fmt::print(stderr, "\r\033[K{} [{}{}] {}/{}{}  {}", title_, std::string(static_cast<std::size_t>(filled), '='),
             std::string(static_cast<std::size_t>(kBar - filled), ' '), done_, total_, eta, now_at);
  std::fflush(stderr);
}

}  // namespace kvcast::app
