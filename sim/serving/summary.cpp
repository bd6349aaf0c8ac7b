#include "serving/summary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace kvcast::serving {
namespace {

constexpr double kBucket = 5e-4;  // width, of its logarithm
constexpr std::size_t kMostMoments = 240, kMostWaits = 60000;
constexpr std::array<std::string_view, 3> kStates = {"stable", "saturated", "undecided"};
// A queue that grows evenly makes requests of the last third wait 5/3 as long as those of the second.
constexpr double kGrows = 1.35, kSteady = 1.2;
constexpr double kNoticeable = 0.1;  // wait of the last third, as a share of the time in service
constexpr double kIdles = 0.8;       // a queue that grows leaves no engine idle: share of the time in passes
constexpr double kTail = 0.99;
constexpr std::size_t kFewRequests = 60, kFewest = 10;  // fewer never show whether a queue grows

double seconds_between(Picoseconds from, Picoseconds to) { return to_seconds(to - from); }

Times times_of(const Distribution& of) { return {of.mean(), of.quantile(0.5), of.quantile(0.9), of.quantile(kTail)}; }

std::vector<double> curve_of(const Distribution& of) {
  std::vector<double> curve;
  if (of.count() == 0) return curve;
  for (int i = 0; i <= 100; ++i) curve.push_back(of.quantile(i / 100.0));
  return curve;
}

// Parts in the proportion of these, that add up to a time.
TtftParts<double> parts_like(const TtftParts<double>& parts, double whole) {
  TtftParts<double> out;
  const double all = parts.sum();
  for (const TtftPart& part : kTtftParts) out.*part.seconds = all > 0 ? parts.*part.seconds / all * whole : 0;
  return out;
}

void add_parts(TtftParts<double>& sum, const TtftParts<double>& of) {
  for (const TtftPart& part : kTtftParts) sum.*part.seconds += of.*part.seconds;
}

// Keeps every second one.
template <class T>
void halve(std::vector<T>& list) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < list.size(); i += 2) list[kept++] = list[i];
  list.resize(kept);
}

}  // namespace

int Distribution::bucket_of(double value) {
  return value > 0 ? static_cast<int>(std::lround(std::log(value) / kBucket)) : Buckets<std::int64_t>::kZero;
}

void Distribution::add(double value, std::int64_t times) {
  buckets_[bucket_of(value)] += times;
  count_ += times;
  sum_ += value * static_cast<double>(times);
}

int Distribution::bucket_at(double share) const {
  const double wanted = std::max(1.0, std::ceil(share * static_cast<double>(count_)));
  std::int64_t below = 0;
  int found = Buckets<std::int64_t>::kZero;
  buckets_.until([&](int bucket, std::int64_t times) {
    below += times;
    found = bucket;
    return static_cast<double>(below) >= wanted;
  });
  return found;
}

double Distribution::quantile(double share) const {
  const int bucket = bucket_at(share);
  return bucket == Buckets<std::int64_t>::kZero ? 0 : std::exp(bucket * kBucket);
}

void Distribution::add(const Distribution& other) {
  other.buckets_.until([&](int bucket, std::int64_t times) {
    if (times > 0) buckets_[bucket] += times;
    return false;
  });
  count_ += other.count_, sum_ += other.sum_;
}

std::string_view state_name(Trend state) { return kStates[static_cast<std::size_t>(state)]; }

std::optional<Trend> state_of(std::string_view name) {
  const auto found = std::ranges::find(kStates, name);
  if (found == kStates.end()) return {};
  return static_cast<Trend>(found - kStates.begin());
}

bool SummaryRecorder::holds(double ttft, std::optional<double> tpot, double e2e) const {
  const config::Slo& slo = *setting_.slo;
  return (!slo.ttft || ttft <= *slo.ttft) && (!slo.tpot || !tpot || *tpot <= *slo.tpot) &&
         (!slo.e2e || e2e <= *slo.e2e);
}

void SummaryRecorder::ended(const Departure& outcome) {
  const traffic::Request& request = outcome.request;
  first_ = std::min(first_, request.arrival);
  last_arrival_ = std::max(last_arrival_, request.arrival);
  if (outcome.rejected) {
    ++rejected_;
    return;
  }
  last_ = std::max(last_, outcome.last_token);
  ++completed_;
  recomputed_ += outcome.recomputed_tokens;
  waited_ += to_seconds(outcome.waited);
  prompt_tokens_ += static_cast<double>(request.prompt_tokens);
  output_tokens_ += static_cast<double>(request.output_tokens);
  hit_tokens_ += static_cast<double>(outcome.hit_tokens);
  loaded_tokens_ += static_cast<double>(outcome.loaded_tokens);
  const TtftParts<Picoseconds> parts = ttft_parts(outcome);
  const double queue = to_seconds(parts.queue);
  const double ttft = seconds_between(request.arrival, outcome.first_token);
  const double e2e = seconds_between(request.arrival, outcome.last_token);
  std::optional<double> tpot;
  if (request.output_tokens > 1) {
    tpot = seconds_between(outcome.first_token, outcome.last_token) / static_cast<double>(request.output_tokens - 1);
    tpot_.add(*tpot);
  }
  queue_.add(queue), ttft_.add(ttft), e2e_.add(e2e);
  TtftParts<double>& sum = ttft_parts_[Distribution::bucket_of(ttft)];
  for (const TtftPart& part : kTtftParts) sum.*part.seconds += to_seconds(parts.*part.picoseconds);
  if (outcome.received != traffic::kNever) {
    admission_.add(std::max(0.0, seconds_between(outcome.prefilled, outcome.reserved)));
    transfer_.add(std::max(0.0, seconds_between(outcome.prefilled, outcome.received)));
    sent_bytes_ += outcome.sent_bytes;
  }
  service_ += e2e - queue - to_seconds(parts.front_end);
  if (setting_.slo && holds(ttft, tpot, e2e)) {
    ++within_;
    good_tokens_ += static_cast<double>(request.output_tokens);
  }
  if (completed_ % waits_every_ == 0) waits_.push_back({request.arrival, queue, tpot.value_or(0)});
  if (waits_.size() < kMostWaits) return;
  waits_every_ *= 2;
  halve(waits_);
}

void SummaryRecorder::ran(const Passes& run) {
  const Picoseconds length = run.time.sum(run.count), end = run.start + length;
  const double seconds = to_seconds(length);
  const double used = static_cast<double>(run.blocks) / static_cast<double>(setting_.blocks);
  running_ += seconds * static_cast<double>(run.running);
  used_ += seconds * used, busy_ += seconds, busiest_ += seconds;
  running_max_ = std::max(running_max_, static_cast<double>(run.running));
  waiting_max_ = std::max(waiting_max_, static_cast<double>(std::max(run.waiting, run.waiting_before)));
  used_max_ = std::max(used_max_, used);
  for (const Gap& gap : run.gaps) itl_.add(to_seconds(gap.since + run.time.at(0)), gap.sequences);
  if (run.count > 1 && run.decodes > 0) {
    // Passes whose times differ by less than a bucket count together.
    const double first = to_seconds(run.time.at(1)), last = to_seconds(run.time.at(run.count - 1));
    if (last <= first * (1 + kBucket)) {
      itl_.add((first + last) / 2, run.decodes * (run.count - 1));
    } else {
      for (std::int64_t j = 1; j < run.count; ++j) itl_.add(to_seconds(run.time.at(j)), run.decodes);
    }
  }
  add_moments(run, end);
  reached_ = end;
}

void SummaryRecorder::add_moments(const Passes& run, Picoseconds end) {
  const double from = moments_.empty() ? 0 : moments_.back().at + between_moments_;
  const double used = static_cast<double>(run.blocks) / static_cast<double>(setting_.blocks);
  double at = std::max(from, to_seconds(run.start));
  auto came = run.arrivals.begin();
  for (; at < to_seconds(end); at += between_moments_) {
    while (came != run.arrivals.end() && to_seconds(*came) <= at) ++came;
    const auto waiting = static_cast<double>(run.waiting + (came - run.arrivals.begin()));
    moments_.push_back({at, static_cast<double>(run.running), waiting, used, static_cast<double>(preemptions_)});
    if (moments_.size() < kMostMoments) continue;
    halve(moments_);
    between_moments_ *= 2;
  }
}

void SummaryRecorder::carried(double in, double out) { carried_in_ += in, carried_out_ += out; }

void SummaryRecorder::preempted(const traffic::Request&, Picoseconds) { ++preemptions_; }

// Requests in the service by the third of the time in which requests arrive; nothing of too short ones.
std::optional<SummaryRecorder::Thirds> SummaryRecorder::in_service(const std::vector<Moment>& moments) const {
  constexpr double kFewestMoments = 15;
  const double span = seconds_between(first_, last_arrival_), from = to_seconds(first_);
  if (span < kFewestMoments * between_moments_) return {};
  Thirds mean{};
  for (const Moment& moment : moments) {
    const double third = 3 * (moment.at - from) / span;
    if (third < 0 || third >= 3) continue;
    mean[static_cast<std::size_t>(third)] += (moment.running + moment.waiting) * 3 * between_moments_ / span;
  }
  return mean;
}

bool SummaryRecorder::grows(const Thirds& thirds) {
  return thirds[2] > kGrows * thirds[1] && thirds[1] > kGrows * thirds[0];
}

// Waits of requests by the third of the time in which they arrived.
Trend SummaryRecorder::state(const std::vector<Moment>& moments) const {
  if (setting_.self_limiting) return Trend::kStable;
  const double service = completed_ > 0 ? service_ / static_cast<double>(completed_) : 0;
  if (waits_.size() < kFewest) return Trend::kUndecided;
  if (last_arrival_ <= first_) return queue_.mean() > kNoticeable * service ? Trend::kSaturated : Trend::kStable;
  Thirds sum{}, tpot{}, number{};
  const double span = seconds_between(first_, last_arrival_);
  for (const Wait& wait : waits_) {
    const auto third = static_cast<std::size_t>(std::min(2.0, 3 * seconds_between(first_, wait.arrival) / span));
    sum[third] += wait.seconds, tpot[third] += wait.tpot, ++number[third];
  }
  for (std::size_t i = 0; i < 3; ++i) sum[i] /= std::max(1.0, number[i]), tpot[i] /= std::max(1.0, number[i]);
  if (busiest_ < kIdles * seconds_between(first_, last_)) return Trend::kStable;
  // Requests that wait longer and longer, or have their tokens more and more slowly, are also more and more.
  const std::optional<Thirds> in = in_service(moments);
  const bool more = !in || grows(*in), slower = tpot[0] > 0 && tpot[2] > kGrows * tpot[0];
  if (in && more && slower) return Trend::kSaturated;
  if (sum[2] <= kNoticeable * service) return Trend::kStable;
  if (more && grows(sum)) return Trend::kSaturated;
  if (static_cast<std::size_t>(completed_) < kFewRequests) return Trend::kUndecided;
  return sum[2] <= kSteady * std::max(sum[0], sum[1]) ? Trend::kStable : Trend::kUndecided;
}

void SummaryRecorder::add(const SummaryRecorder& other) {
  replicas_ += other.replicas_;
  ttft_.add(other.ttft_), tpot_.add(other.tpot_), itl_.add(other.itl_), e2e_.add(other.e2e_), queue_.add(other.queue_);
  admission_.add(other.admission_), transfer_.add(other.transfer_), sent_bytes_ += other.sent_bytes_;
  completed_ += other.completed_, rejected_ += other.rejected_, preemptions_ += other.preemptions_;
  recomputed_ += other.recomputed_, within_ += other.within_, good_tokens_ += other.good_tokens_;
  prompt_tokens_ += other.prompt_tokens_, output_tokens_ += other.output_tokens_, hit_tokens_ += other.hit_tokens_,
      loaded_tokens_ += other.loaded_tokens_;
  service_ += other.service_;
  carried_in_ += other.carried_in_, carried_out_ += other.carried_out_;
  other.ttft_parts_.until([&](int bucket, const TtftParts<double>& of) {
    if (of.sum() > 0) add_parts(ttft_parts_[bucket], of);
    return false;
  });
  first_ = std::min(first_, other.first_), last_ = std::max(last_, other.last_);
  last_arrival_ = std::max(last_arrival_, other.last_arrival_), reached_ = std::max(reached_, other.reached_);
  running_ += other.running_, waited_ += other.waited_, used_ += other.used_, busy_ += other.busy_;
  running_max_ = std::max(running_max_, other.running_max_), waiting_max_ = std::max(waiting_max_, other.waiting_max_);
  used_max_ = std::max(used_max_, other.used_max_);
  add_waits(other);
  busiest_ = std::max(busiest_, other.busiest_);
  between_moments_ = std::max(between_moments_, other.between_moments_);
  others_.push_back(other.moments_);
  others_.insert(others_.end(), other.others_.begin(), other.others_.end());
}

void SummaryRecorder::add_readers(const SummaryRecorder& readers) {
  readers_ = readers.replicas_;
  preemptions_ += readers.preemptions_;
  waiting_max_ = readers.waiting_max_;  // requests wait there
  read_busy_ = readers.busy_;
  busiest_ = std::max(busiest_, readers.busiest_);
}

// Keeps as many of all, so that none counts more than another.
void SummaryRecorder::add_waits(const SummaryRecorder& other) {
  std::vector<Wait> more = other.waits_;
  for (std::int64_t every = other.waits_every_; every < waits_every_; every *= 2) halve(more);
  for (; waits_every_ < other.waits_every_; waits_every_ *= 2) halve(waits_);
  waits_.insert(waits_.end(), more.begin(), more.end());
  for (; waits_.size() >= kMostWaits; waits_every_ *= 2) halve(waits_);
}

// Means over replicas in equal spans of time; a replica without a moment in a span is idle in it.
std::vector<Moment> SummaryRecorder::moments() const {
  if (others_.empty()) return moments_;
  std::map<std::int64_t, Moment> spans;
  const auto add_series = [&](const std::vector<Moment>& series) {
    double preemptions = 0;
    for (std::size_t i = 0, end = 0; i < series.size(); i = end) {
      const auto span = static_cast<std::int64_t>(series[i].at / between_moments_);
      while (end < series.size() && static_cast<std::int64_t>(series[end].at / between_moments_) == span) ++end;
      const double of = static_cast<double>(end - i) * replicas_;
      Moment& sum = spans[span];
      for (std::size_t m = i; m < end; ++m) {
        sum.running += series[m].running / of, sum.waiting += series[m].waiting / of, sum.used += series[m].used / of;
      }
      sum.preemptions += series[end - 1].preemptions - std::exchange(preemptions, series[end - 1].preemptions);
    }
  };
  add_series(moments_);
  for (const std::vector<Moment>& series : others_) add_series(series);
  std::vector<Moment> out;
  double preemptions = 0;
  for (auto& [span, moment] : spans) {
    moment.at = static_cast<double>(span) * between_moments_;
    moment.preemptions = preemptions += moment.preemptions;
    out.push_back(moment);
  }
  return out;
}

Summary SummaryRecorder::summary() const {
  Summary s;
  s.ttft = times_of(ttft_), s.tpot = times_of(tpot_), s.itl = times_of(itl_), s.e2e = times_of(e2e_);
  s.queue = times_of(queue_);
  TtftParts<double> sums;
  TtftParts<double> tail;
  ttft_parts_.until([&, at = ttft_.bucket_at(kTail)](int bucket, const TtftParts<double>& of) {
    add_parts(sums, of);
    if (bucket == at) tail = of;
    return false;
  });
  s.ttft_mean = parts_like(sums, s.ttft.mean);
  s.ttft_p99 = parts_like(tail, s.ttft.p99);
  s.completed = static_cast<double>(completed_), s.rejected = static_cast<double>(rejected_);
  s.preemptions = static_cast<double>(preemptions_), s.recomputed_tokens = static_cast<double>(recomputed_);
  s.prefix_hit_share = prompt_tokens_ > 0 ? hit_tokens_ / prompt_tokens_ : 0;
  s.loaded_share = prompt_tokens_ > 0 ? loaded_tokens_ / prompt_tokens_ : 0;
  s.duration_s = completed_ > 0 ? seconds_between(first_, last_) : 0;
  s.moments = moments();
  s.state = state(s.moments);
  s.ttft_curve = curve_of(ttft_), s.tpot_curve = curve_of(tpot_);
  if (setting_.slo) {
    const double requests = s.completed + s.rejected;
    s.slo_share = requests > 0 ? static_cast<double>(within_) / requests : 0;
    s.good_tokens_per_s = s.duration_s > 0 ? good_tokens_ / s.duration_s : 0;
    s.goodput_per_s = s.duration_s > 0 ? static_cast<double>(within_) / s.duration_s : 0;
  }
  s.apart = readers_ > 0;
  if (transfer_.count() > 0) {
    s.admission = times_of(admission_), s.transfer = times_of(transfer_);
    s.sent_bytes = sent_bytes_ / static_cast<double>(transfer_.count());
  }
  s.running_max = running_max_, s.waiting_max = waiting_max_, s.kv_used_max = used_max_;
  if (s.duration_s <= 0) return s;
  if (const double carried = std::max(carried_in_, carried_out_); carried > 0)
    s.link_share = std::min(1.0, carried / (replicas_ * s.duration_s));
  s.requests_per_s = s.completed / s.duration_s;
  s.output_tokens_per_s = output_tokens_ / s.duration_s;
  s.total_tokens_per_s = (prompt_tokens_ + output_tokens_) / s.duration_s;
  const double engines_s = replicas_ * s.duration_s;
  s.running_mean = running_ / engines_s,
  s.waiting_mean = waited_ / ((readers_ > 0 ? readers_ : replicas_) * s.duration_s);
  if (readers_ > 0) s.prefill_busy_share = read_busy_ / (readers_ * s.duration_s);
  s.kv_used_mean = used_ / engines_s;
  s.busy_share = std::min(1.0, busy_ / engines_s);  // an engine may run on after the last token
  return s;
}

}  // namespace kvcast::serving
