#include "plan/capacity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "config/run.hpp"

namespace kvcast::plan {
namespace {

constexpr double kClosedBracket = 0.02;
constexpr double kLeastShare = 1.0 / 256, kMostShare = 4096;  // of the run's own rate
constexpr double kServesMore = 1.01;
constexpr double kMostRequestsWithin = 0.99;

config::Node with_number(const config::Node& run, const char* key, const std::string& value) {
  return run.with(key, config::Node::scalar(value, run.where()));
}

// Rates of one run with one number of sequences at a time.
class RateLine {
 public:
  RateLine(config::Node run, const std::vector<Target>& targets, Experiments& experiments)
      : run_(std::move(run)), targets_(targets), experiments_(experiments) {
    own_ = config::read_run(run_).traffic->rate;
  }

  // The highest rate that meets the targets by this reading; 0: none.
  double highest(Reading reading) {
    double good = 0, bad = 0;
    for (double rate = own_; rate >= own_ * kLeastShare && good == 0; rate /= 2)
      (meets(rate, reading) ? good : bad) = rate;
    if (good == 0) return 0;
    while (bad == 0 && good < own_ * kMostShare) (meets(2 * good, reading) ? good : bad) = 2 * good;
    while (bad > 0 && bad - good > kClosedBracket * bad) {
      const double middle = (good + bad) / 2;
      (meets(middle, reading) ? good : bad) = middle;
    }
    above_ = bad;
    return good;
  }

  config::Node at(double rate) const { return with_number(run_, "traffic.rate", fmt::format("{:.6g}", rate)); }
  ResultPtr result(double rate) {
    const auto found = results_.find(rate);
    if (found != results_.end()) return found->second;
    return results_.emplace(rate, experiments_.run(at(rate))).first->second;
  }
  double lowest() const { return results_.begin()->first; }
  std::optional<std::string> miss_above() { return above_ > 0 ? missed(*result(above_), targets_) : std::nullopt; }

 private:
  bool meets(double rate, Reading reading) {
    const ResultPtr r = result(rate);
    // Times of a growing queue are those of the requests that were drawn, whatever the limit.
    const bool grows = r->service && r->service->summary.state == serving::Trend::kSaturated;
    return r->status == result::Status::kOk && !grows && !missed(*r, targets_, reading);
  }

  config::Node run_;
  const std::vector<Target>& targets_;
  Experiments& experiments_;
  double own_ = 0, above_ = 0;
  std::map<double, ResultPtr> results_;
};

Capacity capacity_of(RateLine& line, std::int64_t sequences) {
  Capacity out;
  out.rate = line.highest(Reading::kNominal);
  out.miss = line.miss_above();
  const double at = out.rate > 0 ? out.rate : line.lowest();
  out.result = line.result(at);
  out.max_num_seqs = sequences;
  return out;
}

}  // namespace

Capacity find_capacity(const config::Node& run, const std::vector<Target>& targets, Experiments& experiments) {
  RateLine own(run, targets, experiments);
  Capacity best = capacity_of(own, 0);
  std::optional<RateLine> of_best(own);
  // Fewer at a time than ever ran change nothing; halving shows whether fewer serve more.
  double running = best.result->service ? best.result->service->summary.running_max : 0;
  for (auto sequences = static_cast<std::int64_t>(std::ceil(running / 2)); sequences >= 1 && running > 1;
       sequences /= 2) {
    RateLine line(with_number(run, "scheduler.max_num_seqs", std::to_string(sequences)), targets, experiments);
    Capacity fewer = capacity_of(line, sequences);
    const bool more = fewer.rate > best.rate * (best.rate > 0 ? kServesMore : 1);
    if (!more && best.rate > 0) break;
    if (more) best = std::move(fewer), of_best.emplace(line);
  }
  best.low = of_best->highest(Reading::kCertain);
  best.high = std::max(best.rate, of_best->highest(Reading::kPossible));
  return best;
}

std::vector<Target> service_targets(const config::Node& run, std::vector<Target> given) {
  if (!given.empty()) return given;
  const config::Run read = config::read_run(run);
  if (!read.traffic->slo) {
    throw UserError(run.key_where("traffic"), "a capacity needs `traffic.slo` or `targets`");
  }
  Target within;
  within.metric = result::find_metric("serving.slo_share");
  within.limit = kMostRequestsWithin;
  return {within};
}

}  // namespace kvcast::plan
