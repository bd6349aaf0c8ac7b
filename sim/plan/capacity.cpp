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

// Loads of one run with one number of sequences at a time: rates, or numbers of clients.
class LoadLine {
 public:
  LoadLine(config::Node run, const std::vector<Target>& targets, Experiments& experiments)
      : run_(std::move(run)), targets_(targets), experiments_(experiments) {
    const config::Run read = config::read_run(run_);
    const config::Traffic& traffic = *read.traffic;
    closed_ = traffic.arrivals == config::Traffic::Arrivals::kConcurrency;
    own_ = closed_ ? static_cast<double>(traffic.concurrency) : traffic.rate;
    least_ = closed_ ? 1 : own_ * kLeastShare;
    most_ = closed_ ? static_cast<double>(traffic.requests) : own_ * kMostShare;
  }

  // The highest load that meets the targets by this reading; 0: none.
  double highest(Certainty reading) {
    double good = 0, bad = 0;
    for (double load = own_; load >= least_ && good == 0; load = whole(load / 2))
      (meets(load, reading) ? good : bad) = load;
    if (good == 0) return 0;
    while (bad == 0 && good < most_) {
      const double load = std::min(2 * good, std::max(most_, own_));
      (meets(load, reading) ? good : bad) = load;
    }
    while (bad > 0 && bad - good > std::max(kClosedBracket * bad, closed_ ? 1.0 : 0.0)) {
      const double middle = whole((good + bad) / 2);
      (meets(middle, reading) ? good : bad) = middle;
    }
    above_ = bad;
    return good;
  }
  // Requests a second at a load that was tried.
  double served(double load) {
    if (!closed_ || load <= 0) return load;
    return result(load)->service->summary.requests_per_s;
  }
  bool closed() const { return closed_; }

  config::Node at(double load) const {
    return closed_ ? with_number(run_, "traffic.concurrency", fmt::format("{:.0f}", load))
                   : with_number(run_, "traffic.rate", fmt::format("{:.6g}", load));
  }
  ResultPtr result(double rate) {
    const auto found = results_.find(rate);
    if (found != results_.end()) return found->second;
    return results_.emplace(rate, experiments_.run(at(rate))).first->second;
  }
  double lowest() const { return results_.begin()->first; }
  std::optional<std::string> miss_above() { return above_ > 0 ? missed(*result(above_), targets_) : std::nullopt; }
  bool meets(double rate, Certainty reading) {
    const ResultPtr r = result(rate);
    return r->status == result::Status::kOk && !missed(*r, targets_, reading);
  }

 private:
  double whole(double load) const { return closed_ ? std::floor(load) : load; }

  config::Node run_;
  const std::vector<Target>& targets_;
  Experiments& experiments_;
  bool closed_ = false;
  double own_ = 0, least_ = 0, most_ = 0, above_ = 0;
  std::map<double, ResultPtr> results_;
};

Capacity capacity_of(LoadLine& line, std::int64_t sequences) {
  Capacity out;
  const double load = line.highest(Certainty::kNominal);
  out.rate = line.served(load);
  if (line.closed()) out.clients = static_cast<std::int64_t>(load);
  out.miss = line.miss_above();
  const double at = load > 0 ? load : line.lowest();
  out.result = line.result(at);
  out.max_num_seqs = sequences;
  return out;
}

}  // namespace

Capacity find_capacity(const config::Node& run, const std::vector<Target>& targets, Experiments& experiments) {
  LoadLine own(run, targets, experiments);
  Capacity best = capacity_of(own, 0);
  std::optional<LoadLine> of_best(own);
  // Fewer at a time than ever ran change nothing; halving shows whether fewer serve more.
  double running = best.result->service ? best.result->service->summary.running_max : 0;
  for (auto sequences = static_cast<std::int64_t>(std::ceil(running / 2)); sequences >= 1 && running > 1;
       sequences /= 2) {
    LoadLine line(with_number(run, "scheduler.max_num_seqs", std::to_string(sequences)), targets, experiments);
    Capacity fewer = capacity_of(line, sequences);
    const bool more = fewer.rate > best.rate * (best.rate > 0 ? kServesMore : 1);
    if (!more && best.rate > 0) break;
    if (more) best = std::move(fewer), of_best.emplace(line);
  }
  best.low = std::min(best.rate, of_best->served(of_best->highest(Certainty::kCertain)));
  best.high = std::max(best.rate, of_best->served(of_best->highest(Certainty::kPossible)));
  return best;
}

double guessed_capacity(const config::Node& run, Experiments& experiments) {
  const ResultPtr one = experiments.run(run);
  if (!one->service || one->service->summary.busy_share <= 0) return 0;
  return one->service->summary.requests_per_s / one->service->summary.busy_share;
}

bool may_reach(const config::Node& run, double rate, const std::vector<Target>& targets, Experiments& experiments) {
  LoadLine own(run, targets, experiments);
  if (own.meets(rate, Certainty::kPossible)) return true;
  const ResultPtr result = own.result(rate);
  if (!result->service) return false;
  const double running = result->service->summary.running_max;
  for (auto sequences = static_cast<std::int64_t>(std::ceil(running / 2)); sequences >= 1 && running > 1;
       sequences /= 2) {
    LoadLine fewer(with_number(run, "scheduler.max_num_seqs", std::to_string(sequences)), targets, experiments);
    if (fewer.meets(rate, Certainty::kPossible)) return true;
  }
  return false;
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
