// A service in numbers: times of requests, rates, queue and memory over time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "config/traffic.hpp"
#include "serving/queue.hpp"

namespace kvcast::serving {

// Values by the number of their bucket, in pages: those in use lie together, and far fewer than there are numbers.
template <class T>
class Buckets {
 public:
  static constexpr int kZero = std::numeric_limits<int>::min();  // the bucket of zero, before all others

  T& operator[](int bucket) {
    if (bucket == kZero) return zero_;
    const int page = bucket >> kBits;
    if (pages_.empty()) first_ = page;
    if (page < first_) {
      pages_.insert(pages_.begin(), static_cast<std::size_t>(first_ - page), {});
      first_ = page;
    }
    const auto at = static_cast<std::size_t>(page - first_);
    if (at >= pages_.size()) pages_.resize(at + 1);
    if (pages_[at].empty()) pages_[at].resize(kSize);
    return pages_[at][static_cast<std::size_t>(bucket & (kSize - 1))];
  }
  // Calls visit(bucket, value) in order of the buckets, until it returns true. Some of them were never used.
  template <class Visit>
  void until(const Visit& visit) const {
    if (visit(kZero, zero_)) return;
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      for (std::size_t i = 0; i < pages_[p].size(); ++i) {
        if (visit((first_ + static_cast<int>(p)) * kSize + static_cast<int>(i), pages_[p][i])) return;
      }
    }
  }

 private:
  static constexpr int kBits = 6, kSize = 1 << kBits;
  T zero_{};
  int first_ = 0;  // page
  std::vector<std::vector<T>> pages_;
};

// Picoseconds of a request, or seconds of several.
template <class Number>
struct TtftParts {
  Number front_end = 0;  // HTTP and tokenising
  Number queue = 0;      // until the first pass that reads the request
  Number prefill = 0;    // in passes that read it, were it alone in them
  Number beside = 0;     // what decodes and chunks of others add to these passes
  Number between = 0;    // passes of others between its own, and the wait after a preemption
  Number sum() const { return front_end + queue + prefill + beside + between; }
};

// A part as both have it, what it is called, and what it is due to.
struct TtftPart {
  const char *name, *label, *cause;
  double TtftParts<double>::*seconds;
  Picoseconds TtftParts<Picoseconds>::*picoseconds;
};
#define KVCAST_TTFT_PART(name, label, cause) \
  { #name, label, cause, &TtftParts < double> ::name, &TtftParts < Picoseconds> ::name }
inline constexpr TtftPart kTtftParts[] = {KVCAST_TTFT_PART(front_end, "front end", "HTTP and tokenising"),
                                          KVCAST_TTFT_PART(queue, "queue", "waiting"),
                                          KVCAST_TTFT_PART(prefill, "own prefill", "prefill"),
                                          KVCAST_TTFT_PART(beside, "others in its passes", "interference"),
                                          KVCAST_TTFT_PART(between, "passes of others", "interference")};
#undef KVCAST_TTFT_PART

inline TtftParts<Picoseconds> ttft_parts(const Departure& o) {
  return {o.request.front_end, o.scheduled - o.request.arrival - o.request.front_end, o.reading_alone,
          o.reading - o.reading_alone, o.first_token - o.scheduled - o.reading};
}

// Counts of positive numbers in buckets that are 0.05 % wide: memory does not grow with their number.
class Distribution {
 public:
  void add(double value, std::int64_t times = 1);
  std::int64_t count() const { return count_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  // The smallest number that a share of all do not exceed, to a bucket; 0 if there are none.
  double quantile(double share) const;
  // The bucket of a number, and of a quantile; of zero the smallest.
  static int bucket_of(double value);
  int bucket_at(double share) const;
  void add(const Distribution& other);

 private:
  Buckets<std::int64_t> buckets_;
  std::int64_t count_ = 0;
  double sum_ = 0;
};

// Seconds of requests, or of tokens.
struct Times {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0;
};

// Stable: the queue does not grow. Saturated: it grows while requests arrive, or their number in the engine does and
// slows them down, so that times depend on how long one looks. Undecided: too few requests to tell.
enum class Trend { kStable, kSaturated, kUndecided };
std::string_view state_name(Trend state);  // "stable", …
std::optional<Trend> state_of(std::string_view name);

// A moment of the service.
struct Moment {
  double at = 0, running = 0, waiting = 0, used = 0, preemptions = 0;  // seconds; requests; share of the cache; so far
};

struct Summary {
  // Times from arrival; tpot: of requests with two tokens and more; itl: of tokens; queue: from arrival at the engine.
  Times ttft, tpot, itl, e2e, queue;
  TtftParts<double> ttft_mean, ttft_p99;  // add up to these; of p99 as in the requests that take so long
  double requests_per_s = 0, output_tokens_per_s = 0, total_tokens_per_s = 0;
  double duration_s = 0;  // from the first arrival to the last token
  // Share of all requests, rejected ones included, that keep the SLO, and rates of these and of their tokens.
  std::optional<double> slo_share, goodput_per_s, good_tokens_per_s;
  double completed = 0, rejected = 0, preemptions = 0, recomputed_tokens = 0;
  double loaded_share = 0;  // of prompt tokens, found behind the GPU
  std::optional<double>
      link_share;               // of the duration, the busier direction of the link to the host, if it is simulated
  double prefix_hit_share = 0;  // of prompt tokens
  double running_mean = 0, running_max = 0, waiting_mean = 0, waiting_max = 0;  // over time
  double kv_used_mean = 0, kv_used_max = 0;                                     // shares of the pool
  double busy_share = 0;                                                        // of the duration in passes
  // Prefill and decode apart: from the end of a prompt until it has memory where it is decoded, and until its cache has
  // come there; bytes of a request that are sent, mean; time of the replicas that read prompts in passes.
  bool apart = false;
  Times admission, transfer;
  double sent_bytes = 0, prefill_busy_share = 0;
  Trend state = Trend::kUndecided;
  std::vector<Moment> moments;                 // some hundreds, evenly over the duration
  std::vector<double> ttft_curve, tpot_curve;  // quantiles 0, 0.01, … 1; seconds
};

// Adds up what a queue reports.
class SummaryRecorder final : public QueueObserver {
 public:
  struct Setting {
    std::optional<config::Slo> slo;
    std::int64_t blocks = 1;     // of the pool
    bool self_limiting = false;  // a closed loop: the queue cannot grow without limit
  };
  explicit SummaryRecorder(Setting setting) : setting_(std::move(setting)) {}

  void ended(const Departure& outcome) override;
  void ran(const Passes& run) override;
  void preempted(const traffic::Request& request, Picoseconds now) override;
  void carried(double in, double out) override;
  // Adds the requests of another replica, or of several: what engines hold is then the mean over replicas, and the
  // largest of any.
  void add(const SummaryRecorder& other);
  // States what replicas have done that read prompts for those of this recorder.
  void add_readers(const SummaryRecorder& readers);
  Summary summary() const;

 private:
  void add_moments(const Passes& run, Picoseconds end);
  void add_waits(const SummaryRecorder& other);
  std::vector<Moment> moments() const;
  using Thirds = std::array<double, 3>;
  std::optional<Thirds> in_service(const std::vector<Moment>& moments) const;
  static bool grows(const Thirds& thirds);
  Trend state(const std::vector<Moment>& moments) const;
  bool holds(double ttft, std::optional<double> tpot, double e2e) const;

  Setting setting_;
  double replicas_ = 1, readers_ = 0;
  Distribution ttft_, tpot_, itl_, e2e_, queue_, admission_, transfer_;
  double sent_bytes_ = 0, read_busy_ = 0;
  Buckets<TtftParts<double>> ttft_parts_;  // seconds of all requests, by the bucket of their TTFT
  std::int64_t completed_ = 0, rejected_ = 0, preemptions_ = 0, recomputed_ = 0, within_ = 0;
  double good_tokens_ = 0;
  double prompt_tokens_ = 0, output_tokens_ = 0, hit_tokens_ = 0, loaded_tokens_ = 0, service_ = 0;
  double carried_in_ = 0, carried_out_ = 0;
  Picoseconds first_ = traffic::kNever, last_ = 0, last_arrival_ = 0;
  double running_ = 0, used_ = 0, busy_ = 0;  // integrals over time, seconds
  double waited_ = 0;                         // by all requests, seconds
  double busiest_ = 0;                        // of any replica, seconds in passes
  double running_max_ = 0, waiting_max_ = 0, used_max_ = 0;
  Picoseconds reached_ = 0;
  std::vector<Moment> moments_;
  std::vector<std::vector<Moment>> others_;  // of further replicas
  double between_moments_ = 0.05;            // seconds; doubled when there are too many
  struct Wait {
    Picoseconds arrival = 0;
    double seconds = 0, tpot = 0;  // in the queue; 0: has one token
  };
  std::vector<Wait> waits_;  // of every waits_every_-th request
  std::int64_t waits_every_ = 1;
};

}  // namespace kvcast::serving
