#include "app/sweep_rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <unordered_set>

#include "base/error.hpp"
#include "graph/owner.hpp"

namespace kvcast::app {

using result::Result;
using result::Status;

void SweepRows::add(std::int64_t ordinal, const Result& result) {
  // Services are described in reading order (complete()); there are few of them, and each takes long.
  if (report::serves(result.subject)) return;
  const std::lock_guard lock(mutex_);
  add_point(ordinal, result);
}

void SweepRows::add_point(std::int64_t ordinal, const Result& result) {
  points_.push_back({ordinal, result.key, plan::row_of(result, 0, *texts_), plan::swept_point(result, *texts_)});
  if (result.status == Status::kFailed) refusals_.insert(result.error);
  if (result.experiment.oom) add_misfit(result);
}

void SweepRows::add_misfit(const Result& result) {
  const std::string& owner = result.experiment.oom->requested_for;
  for (const char* key : {"workload.prefill_chunk", "workload.prefill_batch"}) {
    if (graph::find_owner(owner) == graph::Owner::kActivations && result.subject.number(key).value_or(1) == 0)
      unset_.insert(key);
  }
  ++misfits_[owner];
}

void SweepRows::complete(const store::Store& store) {
  std::unordered_set<std::string> known;
  for (const Point& point : points_) known.insert(point.key);
  store.for_each(
      [&](const store::Stored& stored) {
        services_.add(stored.result);
        add_point(stored.ordinal, stored.result);
      },
      [&](const std::string& key) { return !known.contains(key); });
  std::ranges::sort(points_, {}, [](const Point& p) { return std::tie(p.ordinal, p.key); });
}

std::int64_t SweepRows::count(Status status) const {
  return std::ranges::count_if(points_, [status](const Point& p) { return p.swept.status == status; });
}

plan::ResultRows SweepRows::rows() const {
  plan::ResultRows rows;
  rows.reserve(points_.size());
  for (const Point& point : points_) {
    rows.push_back(point.row);
    rows.back().index = rows.size() - 1;
  }
  return rows;
}

std::vector<const plan::SweptPoint*> SweepRows::swept() const {
  std::vector<const plan::SweptPoint*> swept;
  swept.reserve(points_.size());
  for (const Point& point : points_) swept.push_back(&point.swept);
  return swept;
}

std::map<std::string, std::size_t> SweepRows::points_of(const std::set<std::string>& keys) const {
  std::map<std::string, std::size_t> points;
  for (const Point& point : points_) {
    if (keys.contains(point.key)) points[point.key] = static_cast<std::size_t>(point.ordinal);
  }
  return points;
}

std::shared_ptr<const Result> SweepRows::load(const store::Store& store, std::size_t index) const {
  auto stored = store.get(points_[index].key);
  if (!stored) throw UserError({store.path(), 0, 0}, "a row was removed while its sweep ended; run the sweep again");
  return std::make_shared<const Result>(std::move(stored->result));
}

std::string SweepRows::misfits_text() const {
  std::vector<std::string> parts;
  for (const auto& [owner, number] : misfits_) parts.push_back(fmt::format("{} for {}", number, owner));
  if (parts.empty()) return "";
  std::string text = fmt::format(" ({})", fmt::join(parts, ", "));
  if (unset_.empty()) return text;
  const auto held = [this](const char* key, const char* what) { return unset_.contains(key) ? what : ""; };
  return text + fmt::format("\nActivations are held for {}{}{}, unless {} {} set.",
                            held("workload.prefill_chunk", "whole prompts"), unset_.size() == 2 ? " and for " : "",
                            held("workload.prefill_batch", "all prompts at once"), fmt::join(unset_, " and "),
                            unset_.size() == 2 ? "are" : "is");
}

}  // namespace kvcast::app
