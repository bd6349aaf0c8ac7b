// Requests, times and observers for tests of sim/serving.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "serving/queue.hpp"

namespace kvcast::tests {

using namespace serving;

inline traffic::Request request(Picoseconds arrival, std::int64_t prompt, std::int64_t outputs) {
  traffic::Request made;
  made.arrival = arrival;
  made.prompt_tokens = prompt;
  made.output_tokens = outputs;
  return made;
}

// Listed requests in order of arrival; numbers them.
class ListedRequests final : public traffic::RequestSource {
 public:
  explicit ListedRequests(std::vector<traffic::Request> requests) : requests_(std::move(requests)) {
    for (std::size_t i = 0; i < requests_.size(); ++i) requests_[i].id = static_cast<std::int64_t>(i);
  }
  Picoseconds next() override { return at_ < requests_.size() ? requests_[at_].arrival : traffic::kNever; }
  traffic::Request take() override { return requests_.at(at_++); }
  void ended(const traffic::Request&, Picoseconds) override { ++ended_; }
  std::int64_t count_ended() const { return ended_; }

 private:
  std::vector<traffic::Request> requests_;
  std::size_t at_ = 0;
  std::int64_t ended_ = 0;
};

// Arrivals of a Poisson process, `rate` a second.
class PoissonRequests final : public traffic::RequestSource {
 public:
  using Lengths = std::function<std::pair<std::int64_t, std::int64_t>(std::uint64_t)>;  // prompt and outputs
  PoissonRequests(double rate, std::int64_t count, std::uint64_t seed, Lengths lengths)
      : rate_(rate), count_(count), stream_(seed), lengths_(std::move(lengths)) {
    draw();
  }
  Picoseconds next() override { return at_ < count_ ? arrival_ : traffic::kNever; }
  traffic::Request take() override {
    const auto [prompt, outputs] = lengths_(static_cast<std::uint64_t>(at_));
    traffic::Request made = request(arrival_, prompt, outputs);
    made.id = at_++;
    draw();
    return made;
  }
  void ended(const traffic::Request&, Picoseconds) override {}

 private:
  void draw() { arrival_ += to_picos(-std::log1p(-stream_.uniform(static_cast<std::uint64_t>(at_))) / rate_); }

  double rate_;
  std::int64_t count_, at_ = 0;
  Stream stream_;
  Lengths lengths_;
  Picoseconds arrival_ = 0;
};

// base + chunk tokens · read + decodes · sequence + contexts · context, linear until the sum of contexts passes a
// multiple of `cell`.
struct LinearTimes final : StepTimes {
  Picoseconds base = 1000, read = 0, sequence = 0, context = 0;
  std::int64_t cell = 0;

  StepTime time(std::span<const Decoding> decodes, std::span<const Chunk> chunks) override {
    StepTime answer{base, 0, 1};
    std::int64_t tokens = 0;
    for (const Chunk& chunk : chunks) answer.first += read * chunk.added;
    for (const Decoding& one : decodes) tokens += one.tokens;
    const auto n = static_cast<std::int64_t>(decodes.size());
    answer.first += sequence * n + context * tokens;
    if (chunks.empty()) {
      answer.growth = context * n;
      answer.steps = cell > 0 ? std::max<std::int64_t>(1, (cell - tokens % cell) / n) : std::int64_t{1} << 40;
    }
    return answer;
  }
};

// An 8B model on a large GPU.
inline LinearTimes step_times() {
  LinearTimes times;
  times.base = 6'000'000'000;
  times.read = 30'000'000;
  times.sequence = 10'000'000;
  times.context = 50'000;
  times.cell = 1 << 18;
  return times;
}

// One pass as text: "A6* B2" are 6 tokens of request 0, which gets a token, and 2 of request 1.
struct Row {
  std::string work, preempted, ended;
  std::int64_t used = 0;
  bool operator==(const Row&) const = default;
};

// Keeps all that happens.
class EventRecorder final : public QueueObserver {
 public:
  std::vector<Departure> outcomes;  // in the order of their ends
  std::vector<Passes> runs;         // without spans
  std::vector<std::vector<Gap>> gaps;
  std::vector<Row> rows;  // of the first pass of each run

  explicit EventRecorder(bool parts = false) : parts_(parts) {}

  void ended(const Departure& outcome) override {
    outcomes.push_back(outcome);
    if (!outcome.rejected) ends_[outcome.last_token].insert(letter(outcome.request));
  }
  void preempted(const traffic::Request& request, Picoseconds) override { preempted_.insert(letter(request)); }
  void ran(const Passes& run) override {
    runs.push_back(run);
    gaps.emplace_back(run.gaps.begin(), run.gaps.end());
    runs.back().gaps = {};
    runs.back().parts = {};
    if (!parts_) return;
    std::set<std::string> work;
    for (const PassPart& part : run.parts) {
      work.insert(letter(*part.request) + std::to_string(part.tokens) + (part.samples ? "*" : ""));
    }
    rows.push_back({joined(work), joined(std::exchange(preempted_, {})), "", run.blocks});
  }
  bool wants_parts() const override { return parts_; }

  // The rows with the ends at the end of each pass; for runs of one pass each.
  std::vector<Row> table() const {
    std::vector<Row> all = rows;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto at = ends_.find(runs[i].start + runs[i].time.first);
      if (at != ends_.end()) all[i].ended = joined(at->second);
    }
    return all;
  }
  const Departure& of(std::int64_t id) const {
    return *std::find_if(outcomes.begin(), outcomes.end(), [id](const Departure& one) { return one.request.id == id; });
  }

 private:
  static std::string letter(const traffic::Request& request) {
    return std::string(1, static_cast<char>('A' + request.id % 26));
  }
  static std::string joined(const std::set<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
  }

  bool parts_;
  std::map<Picoseconds, std::set<std::string>> ends_;
  std::set<std::string> preempted_;
};

inline std::ostream& operator<<(std::ostream& out, const Row& row) {
  return out << "{" << row.work << " | " << row.preempted << " | " << row.ended << " | " << row.used << "}";
}

// The uncompressed cache for every request.
inline FootprintOf full_cache(std::int64_t block) {
  return [full = std::make_shared<const FullCache>(block)](const traffic::Request&) { return full; };
}

}  // namespace kvcast::tests
