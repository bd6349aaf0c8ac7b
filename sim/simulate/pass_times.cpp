#include "simulate/pass_times.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/error.hpp"
#include "config/deployment.hpp"
#include "lower/dense.hpp"
#include "lower/flat.hpp"
#include "policy/growth.hpp"
#include "replay/draw.hpp"
#include "simulate/cost_table.hpp"
#include "simulate/heads_of_rank.hpp"
#include "simulate/timed.hpp"

namespace kvcast::simulate {
namespace {

using graph::OpId;
using policy::HeadCounts;
using serving::Chunk;
using serving::Decoding;

constexpr std::uint64_t kPassSeed = 1;
constexpr std::int64_t kFirstPassDrawn = 10;
// Passes that are dropped: work that outlives a pass fills the streams; a backlog takes longer to build up.
constexpr std::size_t kPassesDropped = 1, kStatefulDropped = 3, kBackloggedDropped = 12;
// Sequences whose drawn steps make a mean: few sequences are measured over several passes.
constexpr int kDrawnSequences = 8, kMostDrawn = 4;
constexpr double kNoPairs = 1e-9;  // share of the query-key pairs of a prompt that are left out
constexpr double kLagging = 0.02;  // growth of the work left over by a pass, as a share of its time

std::int64_t between(std::int64_t a, std::int64_t b, double share) {
  return std::llround(static_cast<double>(a) + share * static_cast<double>(b - a));
}

HeadCounts between(const HeadCounts& a, const HeadCounts& b, double share) {
  HeadCounts out = share < 0.5 ? a : b;
  for (const auto field :
       {&HeadCounts::attended, &HeadCounts::cpu_attended, &HeadCounts::scored, &HeadCounts::candidates,
        &HeadCounts::fetched, &HeadCounts::fetched_runs, &HeadCounts::evicted, &HeadCounts::attended_runs}) {
    out.*field = between(a.*field, b.*field, share);
  }
  return out;
}

}  // namespace

// Counts of a replay at one length moved to a sequence of another.
class MovedCounts {
 public:
  MovedCounts(const PassReplay& of, const policy::Lengths& request, const Decoding& sequence)
      : whole_(of.policy->uncompressed() || of.policy->covers(request)), tokens_(sequence.tokens) {
    const policy::Growth growth = of.policy->growth(request);
    const std::int64_t length = of.replay->prompt_tokens, counted = length + of.replay->decode_steps;
    // Attended tokens grow with those that follow the selection, unless a budget is still to be filled; scored ones
    // grow with the context.
    const std::int64_t like = growth.fill > 0 ? sequence.tokens : length + (sequence.tokens - sequence.known);
    attended_.emplace(growth, counted, like);
    scored_.emplace(growth, counted, sequence.tokens);
    filling_ = sequence.tokens <= growth.fill;
  }
  HeadCounts operator()(const HeadCounts& counts) const {
    if (whole_) return {.attended = tokens_, .attended_runs = 1};
    HeadCounts out = (*attended_)(counts);
    out.scored = (*scored_)(counts).scored;
    out.attended = std::min(out.attended, tokens_);
    if (!filling_) return out;
    // Nothing moves while all tokens have a place.
    return {.attended = out.attended, .attended_runs = 1};
  }

 private:
  bool whole_, filling_ = false;
  std::int64_t tokens_;
  std::optional<policy::GrowthBy> attended_, scored_;
};

// The draws from one replay for a number of sequences.
struct PassTimes::Counts {
  PassReplay of;
  replay::Draw once;  // for what a prompt computes
  Counts(const PassReplay& replay, const config::Model& model)
      : of(replay), once(*replay.replay, model, 1, Stream(kPassSeed)) {}
  std::int64_t length() const { return of.replay->prompt_tokens; }
  // Returns whether the budget was still to be filled: the counts say nothing of what follows.
  bool filling() const {
    const policy::Lengths request{length(), of.replay->decode_steps};
    return request.bound() <= of.replay->growth.fill;
  }
};

// Passes of the same sequences, one block each.
class PassTimes::Source final : public graph::WorkSource {
 public:
  Source(const PassTimes& times, const Passes& of, std::size_t passes)
      : times_(times), setting_(times.setting_), decodes_(of.decodes), passes_(passes) {
    const std::span<const Chunk> chunks = of.chunks;
    const std::span<const Decoding> decodes = of.decodes;
    if (of.without_pairs) {
      setting_.prompt_density = [](int) { return kNoPairs; };
    } else if (!chunks.empty()) {
      const auto above = std::ranges::find_if(
          times.counts_, [&](const auto& counts) { return counts->length() >= chunks.front().known; });
      const replay::Draw& replayed = (above == times.counts_.end() ? times.counts_.back() : *above)->once;
      setting_.prompt_density = [&replayed](int layer) { return replayed.prompt_density(layer); };
    }
    pass_ = lower::pass_of(parts(chunks), *setting_.policy, setting_.rank);
    for (lower::PromptPart& part : pass_.prompts) part.read = of.reads_all ? 1 : part.read;
    pass_.per_query_head = times.counts_.front()->of.replay->per_query_head;
    pass_.plans_attention = !chunks.empty() || attends_to_more();
    pass_.counts = [this](int layer) { return counts(layer); };
    for (const Decoding& d : decodes) pass_.decodes.push_back({d.tokens, request_of(d.known)});
    if (decodes.empty()) return;
    for (const auto& replay : times.counts_) {
      draws_.emplace_back(*replay->of.replay, config::attending(times.input_.run->model),
                          static_cast<int>(decodes.size()), Stream(kPassSeed));
    }
    for (replay::Draw& draw : draws_) {
      heads_.emplace_back(draw, times.input_.run->deployment.tensor_parallel);
      varies_ = varies_ || draw.varies();
    }
    for (const Decoding& d : decodes) place(d);
  }

  bool next_block(std::vector<graph::Op>& out) override {
    out.clear();
    if (done_ == passes_) return false;
    lower::LoweredBlock block(*setting_.framework, next_id_, gate_, events_, out);
    lower::PromptMemory none;
    gate_ = lower::add_pass(block, setting_, pass_, none, -1);
    next_id_ = block.next();
    ++done_;
    return true;
  }
  bool varies() const { return varies_; }
  bool has_notes() const { return !events_.empty(); }

 private:
  policy::Lengths request_of(std::int64_t known) const { return {known, times_.input_.run->workload.decode_tokens}; }

  // Chunks, cut where the policy acts within a prompt.
  std::vector<lower::PassSequence> parts(std::span<const Chunk> chunks) const {
    std::vector<lower::PassSequence> out;
    for (const Chunk& c : chunks) {
      const policy::Lengths request = request_of(c.known);
      const std::int64_t block = setting_.policy->prompt_blocks(setting_.rank, 0, request).tokens;
      const std::int64_t end = c.cached + c.added;
      for (std::int64_t at = c.cached; at < end;) {
        const std::int64_t stop = block > 0 ? std::min(end, (at / block + 1) * block) : end;
        out.push_back({at, stop - at, request});
        at = stop;
      }
    }
    return out;
  }

  bool attends_to_more() const {
    for (const Decoding& d : decodes_) {
      const policy::Growth growth = setting_.policy->growth(request_of(d.known));
      if (growth.grows() || d.tokens <= growth.fill) return true;
    }
    return false;
  }

  // The two replays that a sequence lies between, and its counts moved from each.
  void place(const Decoding& d) {
    const auto& all = times_.counts_;
    const policy::Lengths request = request_of(d.known);
    const bool filling = d.tokens <= setting_.policy->growth(request).fill;
    // Replays ascend, so that those with a budget to be filled come first.
    std::size_t first = 0, end = 0;
    while (end < all.size() && all[end]->filling()) ++end;
    if (!filling) first = end, end = all.size();
    if (first == end) first = 0, end = all.size();
    std::size_t high = first;
    while (high + 1 < end && all[high]->length() < d.known) ++high;
    const std::size_t low = high > first && all[high]->length() > d.known ? high - 1 : high;
    const auto length = [&](std::size_t i) { return static_cast<double>(all[i]->length()); };
    const double share =
        low == high ? 0
                    : std::clamp((static_cast<double>(d.known) - length(low)) / (length(high) - length(low)), 0., 1.);
    places_.push_back({low, high, share, {all[low]->of, request, d}, {all[high]->of, request, d}});
  }

  std::span<const HeadCounts> counts(int layer) {
    const auto step = kFirstPassDrawn + done_;
    drawn_.clear();
    for (HeadsOfRank& heads : heads_) drawn_.push_back(heads(layer, step));
    out_.clear();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const Place& at = places_[i];
      const std::size_t heads = drawn_[at.low].size() / places_.size();
      for (std::size_t h = i * heads; h < (i + 1) * heads; ++h) {
        const HeadCounts low = at.of_low(drawn_[at.low][h]);
        out_.push_back(at.low == at.high ? low : between(low, at.of_high(drawn_[at.high][h]), at.share));
      }
    }
    return out_;
  }

  struct Place {
    std::size_t low = 0, high = 0;
    double share = 0;  // of the high one
    MovedCounts of_low, of_high;
  };

  const PassTimes& times_;
  lower::PassSetting setting_;
  std::span<const Decoding> decodes_;
  std::size_t passes_, done_ = 0;
  lower::PassSequences pass_;
  std::vector<replay::Draw> draws_;
  std::vector<HeadsOfRank> heads_;
  std::vector<Place> places_;
  std::vector<std::span<const HeadCounts>> drawn_;
  std::vector<HeadCounts> out_;
  lower::Events events_;
  graph::OpId next_id_ = 0, gate_ = -1;
  bool varies_ = false;
};

namespace {

// Returns whether the policy does the same on two texts.
bool same_counts(const std::vector<PassReplay>& a, const std::vector<PassReplay>& b) {
  const auto same_layer = [](const replay::LayerCounts& x, const replay::LayerCounts& y) {
    return x.counts == y.counts && x.prompt.density == y.prompt.density;
  };
  const auto same = [&](const PassReplay& x, const PassReplay& y) {
    return std::ranges::equal(x.replay->layers, y.replay->layers, same_layer);
  };
  return std::ranges::equal(a, b, same);
}

}  // namespace

PassTimes::PassTimes(const PassInput& input, const config::Hardware& hardware, Cancel cancel)
    : input_(input),
      costs_(hardware, input.run->framework, {}, input.run->deployment.gpus()),
      system_(make_system(costs_)),
      cancel_(std::move(cancel)) {
  KVCAST_CHECK(!input_.replays.empty() && input_.run->deployment.pipeline_parallel == 1);
  const std::int64_t outputs = input_.run->workload.decode_tokens;
  const config::Model attending = config::attending(input_.run->model);
  for (const PassReplay& replay : input_.replays) {
    // A replay of a length that the budget covers says nothing of longer ones.
    if (!replay.policy->covers({replay.replay->prompt_tokens, outputs}))
      counts_.push_back(std::make_unique<Counts>(replay, attending));
  }
  if (counts_.empty()) counts_.push_back(std::make_unique<Counts>(input_.replays.back(), attending));
  setting_.framework = &input_.run->framework;
  setting_.policy = counts_.front()->of.policy;
  setting_.rank = config::rank_model(input_.run->deployment, input_.run->model);
  if (const auto& s = input_.run->speculation) {
    setting_.speculation = &*s;
    if (s->draft) setting_.draft = config::draft_rank(*s, input_.run->deployment);
  }
  for (const std::vector<PassReplay>& text : input_.other_texts) {
    if (!same_counts(text, input_.replays))
      others_.push_back(std::make_unique<PassTimes>(PassInput{input_.run, text}, hardware, cancel_));
  }
}

void PassTimes::stop_on(const Cancel& cancel) {
  cancel_ = cancel;
  for (const auto& other : others_) other->stop_on(cancel);
}

PassTimes::~PassTimes() = default;

bool PassTimes::covers(std::int64_t known) const {
  return setting_.policy->covers({known, input_.run->workload.decode_tokens});
}

std::int64_t PassTimes::fill(std::int64_t known) const {
  return setting_.policy->growth({known, input_.run->workload.decode_tokens}).fill;
}

double PassTimes::read(std::int64_t known) const {
  return setting_.policy->prompt_blocks(setting_.rank, 0, {known, input_.run->workload.decode_tokens}).read;
}

const policy::Policy& PassTimes::policy() const { return *setting_.policy; }

// Mean over the passes after the warm-up.
PassTimes::Timed PassTimes::time(graph::WorkSource& source, std::size_t warmup) const {
  cancel_.check();
  lower::Works works;
  const lower::FlatStream stream = lower::flatten(source, works);
  CostTable table(works, costs_);
  TimedSource timed(stream, table, {}, stream.blocks.size(), cancel_);
  Recorder recorder(timed, stream.blocks.size());
  engine::run(system_, timed, &recorder);
  const std::size_t last = stream.blocks.size() - 1;
  const Picoseconds from = recorder.start_of(warmup);
  const auto passes = static_cast<double>(last + 1 - warmup);
  const Picoseconds lag_before = warmup > 0 ? recorder.lag(warmup - 1) : 0;
  return {to_seconds(recorder.block_ends()[last] - from) / passes,
          to_seconds(recorder.lag(last) - lag_before) / passes};
}

double PassTimes::pass(const Passes& of) const {
  double sum = on_own_text(of);
  for (const auto& other : others_) sum += other->on_own_text(of);
  return sum / static_cast<double>(1 + others_.size());
}

double PassTimes::on_own_text(const Passes& of) const {
  KVCAST_CHECK(!of.decodes.empty() || !of.chunks.empty());
  Source source(*this, of, kPassesDropped + 1);
  if (!source.varies() && of.chunks.empty()) {
    const Timed timed = time(source, kPassesDropped);
    if (!source.has_notes()) return timed.seconds;
  }
  const auto count = static_cast<int>(of.decodes.size());
  const int drawn = source.varies() ? std::clamp(kDrawnSequences / count, 1, kMostDrawn) : 1;
  for (const std::size_t warmup : {kStatefulDropped, kBackloggedDropped}) {
    Source several(*this, of, warmup + static_cast<std::size_t>(drawn));
    const Timed timed = time(several, warmup);
    if (timed.lag <= kLagging * timed.seconds || warmup == kBackloggedDropped) return timed.seconds;
  }
  return 0;
}

namespace {

// Work by itself, one block.
class Alone final : public graph::WorkSource {
 public:
  Alone(const config::Framework& framework, std::function<void(lower::LoweredBlock&)> add)
      : framework_(framework), add_(std::move(add)) {}
  bool next_block(std::vector<graph::Op>& out) override {
    out.clear();
    if (done_) return false;
    done_ = true;
    lower::Events events;
    lower::LoweredBlock block(framework_, 0, -1, events, out);
    block.set_ready(block.join(graph::Lane::kCompute, {}));
    add_(block);
    block.join_all(0, block.last(), -1);
    return true;
  }

 private:
  const config::Framework& framework_;
  std::function<void(lower::LoweredBlock&)> add_;
  bool done_ = false;
};

}  // namespace

double PassTimes::bare(int sequences) const {
  const config::Model& model = setting_.rank;
  const int rows = sequences * setting_.queries();
  Alone source(*setting_.framework, [&](lower::LoweredBlock& block) {
    OpId op = lower::enter_layers(block, model, rows, block.ready());
    for (int layer = 0; layer < model.layers; ++layer) {
      block.enter_layer(layer);
      if (model.attends(layer)) {
        op = lower::before_attention(block, model, layer, rows, op);
        op = lower::after_attention(block, model, layer, rows, op, !model.slides(layer));
        continue;
      }
      if (model.mixer(layer) == config::Mixer::kRecurrence)
        op = lower::recurrence(block, model, sequences, {}, op, setting_.queries());
      op = lower::after_mixer(block, model, layer, rows, op);
    }
    block.between_steps(sequences, false, lower::head_and_sample(block, model, rows, op));
  });
  return time(source, 0).seconds;
}

double PassTimes::head(int rows) const {
  Alone source(*setting_.framework,
               [&](lower::LoweredBlock& block) { lower::head_and_sample(block, setting_.rank, rows, block.ready()); });
  return time(source, 0).seconds;
}

}  // namespace kvcast::simulate
