// Windows are short. All steps of a window are lowered at one context, so steps differ only by what is drawn from the
// replay. If the drawn steps are the same work, two of them are measured. Otherwise all steps are measured at the
// middle context, and a few of the same drawn steps at the others: the difference between contexts varies far less than
// the steps do (common random numbers).
#include "simulate/lowered.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <tuple>

#include "base/error.hpp"
#include "replay/parts.hpp"
#include "simulate/heads_of_rank.hpp"

namespace kvcast::simulate {
namespace {

// Seed of the draws by which replayed steps represent all layers, sequences and steps.
constexpr std::uint64_t kDrawSeed = 1;
// Draw of the first measured step if all steps are measured. Warm-up steps use the draws before it.
constexpr std::int64_t kFirstDraw = 10;
// Longest window, in steps, that one context represents. In longer ones the growth of the context is noticeable.
constexpr int kStepsOfContext = 32;
// Warm-up steps. One fills the streams that outlive a step, and a step that waits for the one before it takes as
// long after one as after many. If recalls take longer than a step, their backlog must have built up as well, which
// only a run on the machine shows (Experiment::unsettled).
constexpr int kWarmup = 1;
constexpr int kSteadySteps = 2;  // measured if all are the same work
constexpr int kCommonSteps = 2;  // measured at each context except the middle one
constexpr int kPartSteps = 1;    // measured for each part of the sample

// Returns whether the blocks of two steps are the same work in the same order.
bool same_step(const lower::FlatStream& s, std::size_t a, std::size_t b) {
  const std::uint32_t first_a = s.begin_of(a), first_b = s.begin_of(b), size = s.blocks[a].end - first_a;
  if (s.blocks[b].end - first_b != size) return false;
  for (std::uint32_t i = 0; i < size; ++i) {
    const lower::FlatOp &x = s.ops[first_a + i], &y = s.ops[first_b + i];
    if (x.work != y.work || x.kind != y.kind || x.layer != y.layer || x.label != y.label) return false;
    const auto after_x = s.after_of(x), after_y = s.after_of(y);
    const auto later = [&](std::uint32_t p, std::uint32_t q) { return q - p == first_b - first_a; };
    if (!std::equal(after_x.begin(), after_x.end(), after_y.begin(), after_y.end(), later)) return false;
  }
  return true;
}

void keep_blocks(lower::FlatStream& s, std::size_t blocks) {
  s.blocks.resize(blocks);
  s.ops.resize(s.blocks.back().end);
  s.after.resize(s.ops.back().after_end);
  s.memory.resize(s.ops.back().memory_end);
}

// Weights of equally spaced contexts from the first to the last token: Simpson's rule for 3, 5, ... contexts; the
// trapezoidal rule for even numbers.
std::vector<double> context_weights(const config::Run& run) {
  const auto n = static_cast<int>(std::min<std::int64_t>(run.framework.sampled_contexts, run.workload.decode_tokens));
  if (n == 1) return {1.0};
  std::vector<double> weights(n, 1.0);
  for (int i = 1; i + 1 < n; ++i) weights[i] = n % 2 == 0 ? 2.0 : (i % 2 == 1 ? 4.0 : 2.0);
  double sum = 0;
  for (const double w : weights) sum += w;
  for (double& w : weights) w /= sum;
  return weights;
}

// Blocks of another source, until a stop is requested.
class UntilCancelled final : public graph::WorkSource {
 public:
  UntilCancelled(graph::WorkSource& blocks, const Cancel& cancel) : blocks_(blocks), cancel_(cancel) {}
  bool next_block(std::vector<graph::Op>& out) override {
    cancel_.check();
    return blocks_.next_block(out);
  }

 private:
  graph::WorkSource& blocks_;
  const Cancel& cancel_;
};

// Fills the part of requests that follows from a replay.
void fill(lower::Requests& requests, const ExperimentInput& input, std::int64_t prompt, const PassReplay& of,
          replay::Draw& draw) {
  requests.lengths = {prompt, input.run->workload.decode_tokens};
  requests.sequences = draw.batch();
  requests.policy = of.policy;
  requests.counts = HeadsOfRank(draw, input.run->deployment.head_ranks());
  requests.counted_tokens = draw.counted_tokens();
  requests.prompt_density = [&draw](int layer) { return draw.prompt_density(layer); };
  requests.attended_mean = of.replay->proxies.attended_mean;
}

// Counts by query head where a short prompt, which the budget covers, has them by KV head.
lower::CountSource by_query_head(lower::CountSource counts, std::size_t group) {
  return [counts = std::move(counts), group, all = std::vector<policy::HeadCounts>()](
             int layer, std::int64_t step) mutable -> std::span<const policy::HeadCounts> {
    all.clear();
    for (const policy::HeadCounts& head : counts(layer, step)) all.insert(all.end(), group, head);
    return all;
  };
}

// The draws of all lengths, that of the longest prompts last.
std::deque<replay::Draw> draws_of(const ExperimentInput& input) {
  std::deque<replay::Draw> draws;
  const config::Model attending = config::attending(input.run->model);
  const std::vector<config::Workload::Prompts> lengths = input.run->workload.by_length();
  KVCAST_CHECK(lengths.size() == input.shorter.size() + 1);
  for (std::size_t i = 0; i < input.shorter.size(); ++i) {
    draws.emplace_back(*input.shorter[i].replay, attending, lengths[i].sequences, Stream(kDrawSeed));
  }
  draws.push_back(draw_counts(input));
  return draws;
}

lower::DecodeSetting setting_of(const ExperimentInput& input, std::deque<replay::Draw>& draws) {
  lower::DecodeSetting setting = decode_setting(input, draws.back());
  for (std::size_t i = 0; i < input.shorter.size(); ++i) {
    lower::Requests& requests = setting.shorter.emplace_back();
    fill(requests, input, input.run->workload.by_length()[i].tokens, input.shorter[i], draws[i]);
    if (setting.per_query_head && !input.shorter[i].replay->per_query_head)
      requests.counts = by_query_head(std::move(requests.counts), setting.rank.group());
  }
  return setting;
}

class Lowering {
 public:
  Lowering(const ExperimentInput& input, const Cancel& cancel)
      : input_(input), cancel_(cancel), run_(*input.run), draws_(draws_of(input)), setting_(setting_of(input, draws_)) {
    out_.framework = run_.framework, out_.batch = run_.workload.batch;
    out_.gpus = run_.deployment.gpus();
    out_.full_attention = input.policy->uncompressed();
    if (run_.speculation) out_.tokens_per_pass = run_.speculation->tokens_per_pass;
    const double stages = run_.deployment.pipeline_parallel;
    const double parts = std::ceil(static_cast<double>(setting_.own_batch()) / setting_.step_batch());
    const double together = run_.workload.prefill_batch;
    const double groups = together > 0 ? std::ceil(setting_.step_batch() / together) : 1;
    out_.micro_batches_behind = (parts + (stages - 1) / groups) / stages;
    out_.replayed_layers =
        std::min(1.0, static_cast<double>(input.replay->layers.size()) / run_.model.attending_layers());
  }

  Lowered run(const LoweringOptions& options) {
    if (options.prefill) {
      lower::Prefill work(setting_, options.all_warmup);
      out_.prefill = flatten(work);
      out_.prompt_groups = work.repetition();
    }
    if (!options.decode) return std::move(out_);
    warmup_ = warmup_steps(options.all_warmup);
    lower_contexts();
    if (options.parts) lower_parts();
    return std::move(out_);
  }

 private:
  lower::FlatStream flatten(graph::WorkSource& blocks) {
    UntilCancelled until(blocks, cancel_);
    return lower::flatten(until, out_.works);
  }

  int warmup_steps(bool all) {
    const int asked = run_.framework.warmup_steps;
    if (!all) return std::min(asked, kWarmup);
    lower::DecodeWindow window(setting_, run_.workload.prompt_tokens + 1, 1);
    std::vector<graph::Op> step;
    window.next_block(step);
    return window.has_notes() ? asked : std::min(asked, kWarmup);
  }

  // The context at this share of the decode length.
  std::int64_t context_at(double share) const {
    const auto last = static_cast<double>(run_.workload.decode_tokens - 1);
    return setting_.lengths.prompt_tokens + 1 + static_cast<std::int64_t>(std::llround(share * last));
  }

  // The last `last` of `all` drawn steps around a context. `to_end`: the memory is that of the last token.
  DecodeSteps steps(const lower::DecodeSetting& setting, std::int64_t at, int all, int last, bool to_end = false) {
    DecodeSteps out;
    const std::int64_t start = std::max(setting.lengths.prompt_tokens + 1, at - warmup_ - (all - 1) / 2);
    out.warmup = warmup_;
    const std::int64_t first_measured = start + warmup_;
    lower::SampledSteps sampled;
    sampled.consecutive = all > kStepsOfContext;
    sampled.context = sampled.consecutive ? first_measured + all - last - warmup_ : at;
    sampled.steps = warmup_ + last;
    sampled.first_draw = kFirstDraw + all - last - warmup_;
    sampled.held =
        to_end ? setting.lengths.bound() : std::max(start, std::min(first_measured + all - 1, setting.lengths.bound()));
    out.held = sampled.held;
    lower::DecodeWindow window(setting, sampled);
    out.stream = flatten(window);
    return out;
  }

  void lower_contexts() {
    const std::vector<double> weights = context_weights(run_);
    const std::size_t samples = weights.size();
    const auto at = [samples](std::size_t i) {
      return samples == 1 ? 0.5 : static_cast<double>(i) / static_cast<double>(samples - 1);
    };
    out_.middle = samples / 2;
    const int all = run_.framework.measured_steps;
    const bool one_context = all <= kStepsOfContext;
    const bool varies = std::ranges::any_of(draws_, &replay::Draw::varies);
    const int most = varies || !one_context ? all : std::min(kSteadySteps, all);
    DecodeSteps middle = steps(setting_, context_at(at(out_.middle)), all, most, samples == 1);
    const auto first = middle.warmup;
    bool steady = true;
    for (std::size_t s = first + 1; s < middle.stream.blocks.size() && steady; ++s) {
      steady = same_step(middle.stream, first, s);
    }
    if (steady && all > kSteadySteps) keep_blocks(middle.stream, first + kSteadySteps);
    const int common = steady ? static_cast<int>(middle.measured()) : std::min(kCommonSteps, all);
    for (std::size_t i = 0; i < samples; ++i) {
      out_.contexts.push_back(i == out_.middle ? std::move(middle) : steps(setting_, context_at(at(i)), all, common));
      out_.contexts.back().weight = weights[i];
    }
  }

  void lower_parts() {
    const int measured = std::min(kPartSteps, run_.framework.measured_steps);
    std::vector<std::vector<replay::ReplayResult>> of_shorter;
    for (const PassReplay& shorter : input_.shorter) of_shorter.push_back(replay::parts(*shorter.replay));
    const std::vector<replay::ReplayResult> parts = replay::parts(*input_.replay);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      ExperimentInput input = input_;
      input.replay = &parts[i];
      for (std::size_t k = 0; k < of_shorter.size(); ++k) {
        if (i < of_shorter[k].size()) input.shorter[k].replay = &of_shorter[k][i];
      }
      std::deque<replay::Draw> draws = draws_of(input);
      out_.parts.push_back(steps(setting_of(input, draws), context_at(0.5), measured, measured));
    }
  }

  ExperimentInput input_;
  const Cancel& cancel_;
  const config::Run& run_;
  std::deque<replay::Draw> draws_;
  lower::DecodeSetting setting_;
  int warmup_ = 0;
  Lowered out_;
};

}  // namespace

replay::Draw draw_counts(const ExperimentInput& input) {
  const config::Deployment& deployment = input.run->deployment;
  const int stages = deployment.pipeline_parallel;
  const int last = deployment.own_sequences(input.run->workload.by_length().back().sequences);
  return {*input.replay, config::attending(input.run->model), (last + stages - 1) / stages, Stream(kDrawSeed)};
}

lower::DecodeSetting decode_setting(const ExperimentInput& input, replay::Draw& draw) {
  lower::DecodeSetting setting;
  setting.run = input.run;
  setting.rank = config::rank_model(input.run->deployment, input.run->model);
  if (const auto& s = input.run->speculation; s && s->draft)
    setting.draft = config::draft_rank(*s, input.run->deployment);
  setting.per_query_head = input.replay->per_query_head;
  fill(setting, input, input.run->workload.prompt_tokens, {input.policy, input.replay}, draw);
  return setting;
}

bool same_work(const Lowered& a, const Lowered& b) {
  const auto work = [](const Lowered& l) {
    return std::tie(l.batch, l.tokens_per_pass, l.replayed_layers, l.middle, l.works, l.prefill, l.prompt_groups,
                    l.contexts, l.parts);
  };
  return work(a) == work(b);
}

namespace {

std::size_t bytes_of(const lower::FlatStream& s) {
  return s.ops.size() * sizeof(lower::FlatOp) + s.after.size() * sizeof(s.after[0]) +
         s.memory.size() * sizeof(graph::MemoryDelta) + s.blocks.size() * sizeof(lower::FlatStream::Block);
}

}  // namespace

std::size_t bytes_of(const Lowered& lowered) {
  std::size_t bytes = sizeof lowered + lowered.works.size() * sizeof(lower::Works::Entry);
  if (lowered.prefill) bytes += bytes_of(*lowered.prefill);
  for (const auto* const steps : {&lowered.contexts, &lowered.parts}) {
    for (const DecodeSteps& of : *steps) bytes += sizeof of + bytes_of(of.stream);
  }
  return bytes;
}

Lowered lower_experiment(const ExperimentInput& input, const LoweringOptions& options) {
  return Lowering(input, options.cancel).run(options);
}

}  // namespace kvcast::simulate
