#include "study/service.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "base/error.hpp"
#include "result/metric.hpp"
#include "serving/fleet.hpp"
#include "serving/summary.hpp"
#include "study/prepare.hpp"
#include "traffic/front_end.hpp"
#include "traffic/source.hpp"

namespace kvcast::study {
namespace {

constexpr std::uint64_t kOtherDraws = 4;
constexpr double kEnoughError = 0.02;               // sampling error of Service::enough_requests
constexpr double kToInterval = 1.2816;              // standard deviations of an 80 % interval
constexpr double kNear = 1.3;                       // lengths within this factor are replayed as one
constexpr std::int64_t kShortestReplay = 512;       // texts have no room for their tasks in fewer tokens
constexpr std::int64_t kUncompressedReplay = 4096;  // counts of the uncompressed cache follow from any replay

// A length with two significant digits, so that similar traffic shares replays.
std::int64_t rounded(double tokens) {
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(tokens)) - 1));
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::llround(std::round(tokens / unit) * unit)));
}

// Shares of the prompts, ascending, to which each of these lengths is nearest in ratio.
std::vector<double> shares_of(const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& prompts) {
  std::vector<double> shares;
  auto from = prompts.begin();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    auto to = prompts.end();
    if (i + 1 < lengths.size()) {
      const double middle = std::sqrt(static_cast<double>(lengths[i]) * static_cast<double>(lengths[i + 1]));
      to = std::ranges::upper_bound(prompts, static_cast<std::int64_t>(middle));
    }
    shares.push_back(static_cast<double>(to - from) / static_cast<double>(prompts.size()));
    from = to;
  }
  return shares;
}

// Seeds of the draws by whose spread the sampling error is known; none of a trace.
std::vector<std::uint64_t> other_draws(const config::Traffic& traffic) {
  std::vector<std::uint64_t> seeds;
  if (traffic.arrivals == config::Traffic::Arrivals::kTrace) return seeds;
  for (std::uint64_t i = 1; i <= kOtherDraws; ++i) seeds.push_back(traffic.seed + i * 1'000'003);
  return seeds;
}

// Visits the requests that fit in the model's context.
template <class Visit>
void visit_requests(const config::Traffic& traffic, std::int64_t max_context, const Visit& visit) {
  const auto source = traffic::make_source(traffic);
  for (Picoseconds at = source->next(); at != traffic::kNever; at = source->next()) {
    const traffic::Request request = source->take();
    source->ended(request, request.arrival);
    if (request.prompt_tokens + request.output_tokens <= max_context) visit(request);
  }
}

// Passes on what happens in the nominal run.
class Logging final : public serving::QueueObserver {
 public:
  Logging(serving::SummaryRecorder& recorder, const RequestLog& log, serving::QueueObserver* observer)
      : recorder_(recorder), log_(log), observer_(observer) {}
  void ended(const serving::Departure& outcome) override {
    recorder_.ended(outcome);
    if (log_) log_(outcome);
    if (observer_ != nullptr) observer_->ended(outcome);
  }
  void ran(const serving::Passes& run) override {
    recorder_.ran(run);
    if (observer_ != nullptr) observer_->ran(run);
  }
  void preempted(const traffic::Request& request, Picoseconds now) override {
    recorder_.preempted(request, now);
    if (observer_ != nullptr) observer_->preempted(request, now);
  }
  void carried(double in, double out) override { recorder_.carried(in, out); }
  bool wants_parts() const override { return observer_ != nullptr && observer_->wants_parts(); }

 private:
  serving::SummaryRecorder& recorder_;
  const RequestLog& log_;
  serving::QueueObserver* observer_;
};

}  // namespace

RequestLengths request_lengths(const config::Traffic& traffic, std::int64_t max_context) {
  RequestLengths out;
  std::vector<std::int64_t> prompts;
  double prompt_sum = 0, output_sum = 0;
  visit_requests(traffic, max_context, [&](const traffic::Request& request) {
    prompts.push_back(request.prompt_tokens);
    prompt_sum += static_cast<double>(request.prompt_tokens), output_sum += static_cast<double>(request.output_tokens);
    out.most_outputs = std::max(out.most_outputs, request.output_tokens);
  });
  if (prompts.empty()) {
    throw UserError(traffic.where, fmt::format("traffic: no request fits in a context of {} tokens", max_context));
  }
  out.requests = static_cast<std::int64_t>(prompts.size());
  out.mean_prompt = prompt_sum / static_cast<double>(prompts.size());
  out.mean_outputs = output_sum / static_cast<double>(prompts.size());
  std::ranges::sort(prompts);
  out.shortest = prompts.front(), out.longest = prompts.back();
  out.shortest_drawn = out.shortest, out.longest_drawn = out.longest, out.most_outputs_drawn = out.most_outputs;
  for (const std::uint64_t seed : other_draws(traffic)) {
    config::Traffic other = traffic;
    other.seed = seed;
    visit_requests(other, max_context, [&out](const traffic::Request& request) {
      out.shortest_drawn = std::min(out.shortest_drawn, request.prompt_tokens);
      out.longest_drawn = std::max(out.longest_drawn, request.prompt_tokens);
      out.most_outputs_drawn = std::max(out.most_outputs_drawn, request.output_tokens);
    });
  }
  const auto at = [&](double share) {
    return prompts[static_cast<std::size_t>(share * static_cast<double>(prompts.size() - 1))];
  };
  if (out.longest <= static_cast<std::int64_t>(kNear * static_cast<double>(out.shortest))) {
    out.replayed = {out.longest == out.shortest ? out.longest : rounded(out.mean_prompt)};
    out.shares = {1};
    return out;
  }
  for (const double share : {0.1, 0.5, 0.9}) {
    const std::int64_t length = rounded(static_cast<double>(at(share)));
    if (out.replayed.empty() || static_cast<double>(length) > kNear * static_cast<double>(out.replayed.back()))
      out.replayed.push_back(length);
  }
  out.shares = shares_of(out.replayed, prompts);
  return out;
}

void derive_workload(config::Run& run, const policy::Descriptor& policy, const RequestLengths& lengths) {
  run.workload.prompt_tokens = std::max<std::int64_t>(1, std::llround(lengths.mean_prompt));
  run.workload.decode_tokens = std::max<std::int64_t>(1, std::llround(lengths.mean_outputs));
  run.workload.batch = 1;
  config::resolve_budget(run.policy, run.workload.prompt_tokens);
  std::vector<std::int64_t> replayed = lengths.replayed;
  if (policy.uncompressed()) replayed = {std::min(kUncompressedReplay, lengths.replayed.back())};
  for (std::int64_t& tokens : replayed) tokens = std::max(tokens, std::min(kShortestReplay, run.model.max_context));
  replayed.erase(std::ranges::unique(replayed).begin(), replayed.end());
  run.traces = at_lengths(run.traces, replayed);
}

namespace {

class ServiceRuns {
 public:
  ServiceRuns(const ServiceInput& input)
      : input_(input),
        run_(*input.run),
        rules_(service_rules(run_)),
        shared_(table()),
        memory_(service_memory(run_, shared_->passes->policy(), rules_, input.attended)) {
    if (memory_.blocks < 1) {
      throw UserError(run_.traffic->where, "traffic: weights and activations leave no memory for a cache");
    }
    rules_.host_bytes = memory_.host_bytes;
    rules_.windows = memory_.windows;
  }

  // Blocks as the caches behind the GPU hold them, and what decoding leaves of the link.
  void set_caches(const Reference& reference) {
    const bool apart = run_.deployment.prefill_replicas > 0;
    // Copies of offloading policies lie where prompts are decoded, so that no prompt apart from that finds them.
    const bool copies = !apart && memory_.copied_bytes > 0 && rules_.reuse == serving::Reuse::kRadix &&
                        rules_.prefix_caching && rules_.engine != serving::Engine::kTrtllm;
    if (apart) rules_.staging = *written_transfer(run_).staging;
    if (copies && rules_.tiers.empty()) rules_.tiers = {{memory_.host_bytes}};
    if (!apart && rules_.tiers.empty()) return;
    rules_.host_copies = copies;
    rules_.link_bytes = memory_.block_bytes;
    const double ranks = (run_.model.latent || run_.model.compressed) && run_.scheduler.shared_copies.value_or(false)
                             ? 1
                             : run_.deployment.tensor_parallel;
    rules_.stored_bytes = copies ? memory_.copied_bytes : memory_.block_bytes * ranks;
    if (apart) return;
    if (memory_.copied_bytes <= 0) return;  // nothing is recalled
    const result::Result one = reference(1);
    if (one.has_times()) rules_.recalled_bytes = one.experiment.traffic.h2d;
  }

  result::Result run(const Reference& reference) {
    set_caches(reference);
    const serving::Summary as_is = serve({memory_.blocks, run_.traffic->seed}, true);
    result::Result result = reference(std::max(1, static_cast<int>(std::lround(as_is.running_mean))));
    if (!result.has_times()) result = reference(1);  // a batch needs more memory than an engine's pool of blocks
    if (!result.has_times()) return result;
    const Interval decodes = factors(result, "decode.tpot_s.mean"), chunks = factors(result, "prefill.ttft_s");
    result::Service& service = result.service.emplace();
    service.origin =
        worse(worse(result::origin_of(result.experiment.step), result::origin_of(result.experiment.prefill)),
              memory_.low < memory_.high ? Origin::kLiterature : Origin::kExact);
    for (const Value& v : {run_.framework.front_end_request, run_.framework.client_time})
      if (v.value > 0) service.origin = worse(service.origin, v.origin);
    service.kv_capacity_tokens = static_cast<double>(memory_.blocks) * memory_.tokens_of_block;
    service.summary = as_is;
    service.served = as_is.completed > 0;
    service.link_busy_share = as_is.link_share.value_or(link_share(result));
    if (input_.intervals) add_intervals(result, decodes, chunks);
    return result;
  }

 private:
  // Factors on the times of passes, and the end of the interval of the front end's: 0 is its middle.
  struct Served {
    std::int64_t blocks = 0;
    std::uint64_t seed = 0;
    double decodes = 1, chunks = 1, clients = 0;
  };

  void add_intervals(result::Result& result, const Interval& decodes, const Interval& chunks) {
    const result::Result nominal = result;
    std::vector<result::Result> times, pools, draws;
    const auto other = [&](std::vector<result::Result>& to, const Served& what) {
      result::Result& r = to.emplace_back(nominal);
      r.service->summary = serve(what, false);
      r.service->kv_capacity_tokens = static_cast<double>(what.blocks) * memory_.tokens_of_block;
    };
    const std::uint64_t seed = run_.traffic->seed;
    other(times, {memory_.blocks, seed, decodes.low, chunks.low, -1});
    other(times, {memory_.blocks, seed, decodes.high, chunks.high, 1});
    if (memory_.low < memory_.high && memory_.low > 0) {
      other(pools, {memory_.low, seed}), other(pools, {memory_.high, seed});
    }
    for (const std::uint64_t drawn : other_draws(*run_.traffic)) other(draws, {memory_.blocks, drawn});
    for (const result::Metric& metric : result::all_metrics()) {
      if (metric.basis != result::Basis::kServing || metric.path == "serving.sampling_error" ||
          metric.path == "serving.enough_requests")
        continue;
      if (const auto middle = result::value(nominal, metric)) {
        result.by_text.push_back({metric.path, interval_of(metric, *middle, times, pools, draws)});
      }
    }
    if (!draws.empty()) add_sampling(nominal, draws, *result.service);
  }

  // Ends of a time's interval, as factors on it.
  static Interval factors(const result::Result& result, const char* name) {
    const result::Metric& metric = *result::find_metric(name);
    const auto value = result::value(result, metric);
    const auto range = result::interval(result, metric);
    return value && range && *value > 0 ? Interval{range->low / *value, range->high / *value} : Interval{1, 1};
  }

  // Copies of the reference's decode steps, at the link's rate.
  double link_share(const result::Result& result) const {
    const double bytes = result.experiment.traffic.h2d, step = result.experiment.tpot_mean_s;
    return std::min(1.0, bytes / run_.hardware.link.h2d_bandwidth / step) * result.service->summary.busy_share;
  }

  // The table for these lengths, made unless another service has made it.
  std::shared_ptr<SharedTable> table() const {
    const simulate::StepRanges r = ranges();
    const auto shared = input_.shared->tables().put(
        fmt::format("{} {} {} {} {}", r.shortest, r.longest, r.generated, r.pass_tokens, input_.times_key),
        std::make_shared<SharedTable>());
    const std::lock_guard lock(shared->mutex);
    if (shared->table) return shared;
    shared->run = run_, shared->replays = input_.replays, shared->input = input_.passes;
    shared->input.run = &shared->run;
    shared->passes.emplace(shared->input, shared->run.hardware, input_.cancel);
    shared->table.emplace(*shared->passes, r);
    return shared;
  }

  simulate::StepRanges ranges() const {
    const RequestLengths& l = input_.lengths;
    const std::int64_t outputs = l.most_outputs_drawn;
    const std::int64_t longest = std::max<std::int64_t>(l.longest_drawn, 256);
    const bool cut = rules_.prompts == serving::Prompts::kChunked;
    std::int64_t shortest = l.shortest_drawn;
    if (rules_.reuse == serving::Reuse::kChain && rules_.prefix_caching)
      shortest =
          std::min(shortest, kept_tokens(run_, *input_.passes.replays.front().policy, l.longest, input_.attended));
    // A preempted request is read again with the tokens that it has generated.
    return {shortest, std::max(l.shortest_drawn, std::min(run_.model.max_context, l.longest_drawn + outputs)), outputs,
            cut ? std::min(rules_.max_num_batched_tokens, longest) : longest};
  }

  serving::Summary serve(const Served& what, bool watched) {
    serving::Rules rules = rules_;
    rules.blocks = what.blocks;
    const std::lock_guard lock(shared_->mutex);
    shared_->passes->stop_on(input_.cancel);
    shared_->table->scale(what.decodes, what.chunks);
    config::Traffic traffic = *run_.traffic;
    traffic.seed = what.seed;
    const config::Framework& f = run_.framework;
    const auto longer = [&](const Value& v) {
      return to_picos(v.value * std::max(0.0, 1 + what.clients * v.uncertainty));
    };
    // Each replica that requests reach has one of its own.
    const config::Deployment& d = run_.deployment;
    const Picoseconds request = longer(f.front_end_request);
    const Picoseconds in_turn = request / (d.prefill_replicas > 0 ? d.prefill_replicas : d.replicas);
    traffic::FrontEnd source(traffic::make_source(traffic), in_turn, request - in_turn + longer(f.client_time));
    const serving::SummaryRecorder::Setting setting{traffic.slo, what.blocks,
                                                    traffic.arrivals == config::Traffic::Arrivals::kConcurrency};
    static const RequestLog kNone;
    std::deque<serving::SummaryRecorder> recorders;
    std::deque<Logging> observers;
    const auto parts_of = [&](std::int64_t) {
      auto separate = memory_.footprint->for_thread();
      if (separate == nullptr) separate = memory_.footprint;
      serving::SummaryRecorder& recorder = recorders.emplace_back(setting);
      Logging& observer =
          observers.emplace_back(recorder, watched ? input_.log : kNone, watched ? input_.observer : nullptr);
      return serving::ReplicaParts{&*shared_->table, [separate](const traffic::Request&) { return separate; },
                                   &observer};
    };
    serving::Fleet fleet = fleet_of(run_, memory_);
    fleet.threads = input_.threads;
    fleet.in_order = watched && (input_.log || input_.observer != nullptr);
    serving::serve_fleet(source, fleet, rules, parts_of, input_.cancel);
    const auto sum = [&](std::int64_t from, std::int64_t to) -> serving::SummaryRecorder& {
      serving::SummaryRecorder& first = recorders[static_cast<std::size_t>(from)];
      for (std::int64_t k = from + 1; k < to; ++k) first.add(recorders[static_cast<std::size_t>(k)]);
      return first;
    };
    serving::SummaryRecorder& decoders = sum(0, fleet.replicas);
    if (fleet.readers.replicas > 0) decoders.add_readers(sum(fleet.replicas, fleet.replicas + fleet.readers.replicas));
    return decoders.summary();
  }

  // Ends by independent causes: both ends of times and of memory, and the spread of draws. In logarithms where all
  // numbers are above 0, so that none of the interval is below it.
  static Interval interval_of(const result::Metric& metric, double middle, const std::vector<result::Result>& times,
                              const std::vector<result::Result>& pools, const std::vector<result::Result>& draws) {
    double below = 0, above = 0;
    const auto value = [&](const result::Result& r) { return result::value(r, metric).value_or(middle); };
    bool positive = middle > 0;
    for (const auto* all : {&times, &pools, &draws}) {
      positive &= std::ranges::all_of(*all, [&](const result::Result& r) { return value(r) > 0; });
    }
    const auto moved = [&](const result::Result& r) {
      return positive ? std::log(value(r) / middle) : value(r) - middle;
    };
    for (const auto* ends : {&times, &pools}) {
      double low = 0, high = 0;
      for (const result::Result& r : *ends) low = std::min(low, moved(r)), high = std::max(high, moved(r));
      below = std::hypot(below, low), above = std::hypot(above, high);
    }
    double squares = 0;
    for (const result::Result& r : draws) squares += moved(r) * moved(r);
    if (!draws.empty()) {
      const double spread = kToInterval * std::sqrt(squares / static_cast<double>(draws.size()) / 2);
      below = std::hypot(below, spread), above = std::hypot(above, spread);
    }
    Interval out = positive ? Interval{middle * std::exp(-below), middle * std::exp(above)}
                            : Interval{middle - below, middle + above};
    if (middle >= 0) out.low = std::max(0.0, out.low);
    if (metric.unit == result::Unit::kShare) out.high = std::min(std::max(1.0, middle), out.high);
    return out;
  }

  // Differences of two draws have twice the variance of one.
  void add_sampling(const result::Result& nominal, const std::vector<result::Result>& draws,
                    result::Service& service) const {
    const double middle = nominal.service->summary.e2e.mean;
    if (middle <= 0) return;
    double squares = 0;
    for (const result::Result& r : draws) squares += std::pow(r.service->summary.e2e.mean / middle - 1, 2);
    service.sampling_error = std::sqrt(squares / static_cast<double>(draws.size()) / 2);
    service.enough_requests =
        std::ceil(static_cast<double>(input_.lengths.requests) * std::pow(service.sampling_error / kEnoughError, 2));
  }

  const ServiceInput& input_;
  const config::Run& run_;
  serving::Rules rules_;
  std::shared_ptr<SharedTable> shared_;
  ServiceMemory memory_;
};

}  // namespace

result::Result serve_requests(const ServiceInput& input, const Reference& reference) {
  return ServiceRuns(input).run(reference);
}

}  // namespace kvcast::study
