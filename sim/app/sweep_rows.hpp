// Compact records of a sweep's results, a few hundred bytes each, from which its end writes findings. The results
// themselves are freed as soon as they are stored.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "app/service_finding.hpp"
#include "plan/rows.hpp"
#include "plan/unchanged.hpp"
#include "store/store.hpp"

namespace kvcast::app {

class SweepRows {
 public:
  // A result that was stored just now. May be called from any thread.
  void add(std::int64_t ordinal, const result::Result& result);
  // Adds all other shown rows of the store and brings everything into reading order.
  void complete(const store::Store& store);

  std::size_t size() const { return points_.size(); }
  std::int64_t count(result::Status status) const;
  plan::ResultRows rows() const;  // indices are places in reading order
  std::vector<const plan::SweptPoint*> swept() const;
  plan::Texts& texts() { return *texts_; }
  const ServiceFinding& services() const { return services_; }
  // The results of these keys in the sweep, by key.
  std::map<std::string, std::size_t> points_of(const std::set<std::string>& keys) const;
  // Reads a result from the store.
  std::shared_ptr<const result::Result> load(const store::Store& store, std::size_t index) const;

  // Owners of requests that did not fit, and how prompts that are prefilled whole could request less.
  std::string misfits_text() const;
  const std::set<std::string>& refusals() const { return refusals_; }

 private:
  struct Point {
    std::int64_t ordinal;
    std::string key;
    plan::ResultRow row;
    plan::SweptPoint swept;
  };
  void add_misfit(const result::Result& result);
  void add_point(std::int64_t ordinal, const result::Result& result);

  std::mutex mutex_;
  std::unique_ptr<plan::Texts> texts_ = std::make_unique<plan::Texts>();
  std::deque<Point> points_;
  std::set<std::string> refusals_;               // each reason once
  std::map<std::string, int> misfits_;           // by the owner of the request
  std::set<std::string, std::greater<>> unset_;  // keys that would split prompts, or prefill fewer of them at once
  ServiceFinding services_;
};

}  // namespace kvcast::app
