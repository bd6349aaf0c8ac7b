// Small random loads: rules, footprints, times and requests, some of which can never fit.
#pragma once

#include <memory>
#include <vector>

#include "support/serving.hpp"

namespace kvcast::tests {

using namespace serving;

// A policy that keeps a part of the prompt once it has been read, and some memory in the host.
class Evicting final : public Footprint {
 public:
  Evicting(std::int64_t block, std::int64_t budget, std::int64_t growth, double host)
      : full_(block), budget_(budget), growth_(growth), host_(host) {}
  std::int64_t reading(std::int64_t tokens) const override { return full_.reading(tokens) + (growth_ == 0 ? 1 : 0); }
  std::int64_t decoding(std::int64_t known, std::int64_t tokens) const override {
    return full_.reading(std::min(known, budget_) + growth_ * (tokens - known));
  }
  double host_bytes(std::int64_t tokens) const override { return host_ * static_cast<double>(tokens); }

 private:
  FullCache full_;
  std::int64_t budget_, growth_;
  double host_;
};

// Numbers of one stream, one after the other.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : stream_(seed) {}
  std::int64_t between(std::int64_t low, std::int64_t high) {  // both included
    return low + static_cast<std::int64_t>(stream_.below(next_++, static_cast<std::uint64_t>(high - low + 1)));
  }
  bool chance(double p) { return stream_.uniform(next_++) < p; }

 private:
  Stream stream_;
  std::uint64_t next_ = 0;
};

// Listed requests, each followed by further turns that arrive a while after its end.
class Sessions final : public traffic::RequestSource {
 public:
  struct Turn {
    std::int64_t prompt, outputs;
    Picoseconds pause;
  };
  void add(traffic::Request first, std::vector<Turn> turns) {
    first.session = static_cast<std::int64_t>(turns_.size());
    turns_.push_back(std::move(turns));
    add(std::move(first));
  }
  Picoseconds next() override { return queue_.empty() ? traffic::kNever : queue_.begin()->first; }
  traffic::Request take() override {
    traffic::Request taken = std::move(queue_.begin()->second);
    queue_.erase(queue_.begin());
    taken.id = taken_++;
    last_arrival_ = taken.arrival;
    return taken;
  }
  void ended(const traffic::Request& request, Picoseconds now) override {
    if (now < last_arrival_) late_ = true;
    const std::vector<Turn>& turns = turns_.at(static_cast<std::size_t>(request.session));
    if (request.turn >= static_cast<std::int32_t>(turns.size())) return;
    const Turn& turn = turns[static_cast<std::size_t>(request.turn)];
    traffic::Request more = request;
    ++more.turn;
    more.arrival = now + turn.pause;
    // The next prompt begins with all that came before.
    std::int64_t own = request.prompt_tokens;
    for (const traffic::Segment& segment : request.content) own -= segment.tokens;
    const auto key = static_cast<std::uint64_t>(request.id) * 2 + 1000;
    if (own > 0) more.content.push_back({key, own});
    more.content.push_back({request.answer_key, request.output_tokens});
    more.answer_key = key + 1;
    more.prompt_tokens = request.prompt_tokens + request.output_tokens + turn.prompt;
    more.output_tokens = turn.outputs;
    add(std::move(more));
  }
  std::int64_t taken() const { return taken_; }
  bool late() const { return late_; }  // an end before the arrival of a request that was taken
  bool empty() const { return queue_.empty(); }

 private:
  void add(traffic::Request one) { queue_.emplace(one.arrival, std::move(one)); }

  std::multimap<Picoseconds, traffic::Request> queue_;
  std::vector<std::vector<Turn>> turns_;
  std::int64_t taken_ = 0;
  Picoseconds last_arrival_ = 0;
  bool late_ = false;
};

struct Load {
  Rules rules;
  Sessions requests;
  LinearTimes times;
  std::vector<std::shared_ptr<const Footprint>> footprints;
  bool full = true;  // all of them the uncompressed cache

  FootprintOf footprint_of() const {
    return [this](const traffic::Request& one) {
      return footprints[static_cast<std::size_t>(one.prompt_tokens) % footprints.size()];
    };
  }
};

inline Rules random_rules(Engine engine, Draws& draw) {
  Rules rules = Rules::of(engine);
  rules.block = draw.between(1, 6);
  rules.max_num_seqs = draw.between(1, 7);
  rules.max_num_batched_tokens = draw.between(6, 60);
  rules.blocks = draw.between(4, 60) + (draw.chance(0.2) ? 400 : 0);
  rules.prefix_caching = rules.prefix_caching && draw.chance(0.6);
  if (engine == Engine::kVllmV1 && draw.chance(0.4)) {
    rules.windows = {draw.between(1, 3), draw.between(1, 2), draw.between(1, 30)};
    rules.blocks *= rules.windows.groups + rules.windows.others;
  }
  rules.full_prompt_gate = draw.chance(0.5);
  rules.in_flight = draw.between(1, 2);
  if (draw.chance(0.2)) rules.long_prefill_token_threshold = draw.between(1, 9);
  if (draw.chance(0.3)) rules.watermark = 0.1;
  rules.prompts = draw.chance(0.7) ? Prompts::kChunked : draw.chance(0.5) ? Prompts::kWhole : Prompts::kAlone;
  if (draw.chance(0.2)) rules.max_context = draw.between(20, 80);
  if (draw.chance(0.3)) rules.host_bytes = static_cast<double>(draw.between(50, 400));
  rules.sglang.max_prefill_tokens = draw.between(5, 100);
  rules.sglang.ratio = 0.1 * static_cast<double>(draw.between(0, 10));
  rules.sglang.ratio_steps = draw.between(1, 40);
  rules.sglang.mixed_chunk = draw.chance(0.3);
  rules.sglang.retract_steps = draw.chance(0.5) ? 1 : 20;
  rules.sglang.full_flag = draw.chance(0.8);
  rules.sglang.longest_prefix_first = draw.chance(0.3);
  rules.sglang.page_margin = draw.chance(0.3);
  rules.trtllm.chunked_prefill = draw.chance(0.6);
  rules.trtllm.max_utilisation = draw.chance(0.5);
  rules.vllm_v0.chunked = draw.chance(0.5);
  if (!rules.prefix_caching && engine != Engine::kVllmV1) return rules;
  if (engine == Engine::kTrtllm) return rules;
  if (rules.windows.groups > 0) return rules;
  rules.reuse = draw.chance(0.6) ? Reuse::kRadix : draw.chance(0.8) ? Reuse::kChain : Reuse::kNone;
  rules.write_back = engine == Engine::kVllmV1 && draw.chance(0.3) && rules.prefix_caching;
  rules.host_copies = draw.chance(0.3);
  rules.link = {1e12 * static_cast<double>(draw.between(1, 40)), 1e12 * static_cast<double>(draw.between(1, 40)), 5e13};
  rules.link_bytes = rules.stored_bytes = 1000;
  rules.recalled_bytes = draw.chance(0.3) ? 300 : 0;
  if (draw.chance(0.6)) rules.tiers.push_back({1000.0 * static_cast<double>(draw.between(0, 100))});
  if (!rules.tiers.empty() && draw.chance(0.4)) rules.tiers.push_back({1e6, 2e12, 1e12, 1e-10});
  if (rules.tiers.empty()) rules.host_copies = false;
  const bool may_block = engine == Engine::kVllmV1 && !rules.tiers.empty() && !rules.write_back;
  rules.blocking_copies = may_block && draw.chance(0.3);
  return rules;
}

inline Load random_load(Engine engine, std::uint64_t seed) {
  Draws draw(seed);
  Load load;
  load.rules = random_rules(engine, draw);
  const std::int64_t block = load.rules.block;
  load.footprints = {std::make_shared<FullCache>(block)};
  if (draw.chance(0.4)) {
    load.full = false;
    load.footprints.push_back(std::make_shared<Evicting>(block, draw.between(2, 30), draw.between(0, 1), 1));
  }
  load.times.base = draw.between(1, 2000);
  load.times.read = draw.between(0, 100);
  load.times.sequence = draw.between(0, 50);
  load.times.context = draw.between(0, 9);
  load.times.cell = draw.chance(0.5) ? draw.between(5, 300) : 0;
  const std::int64_t count = draw.between(1, 40), spread = draw.between(1, 4000);
  Picoseconds at = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (draw.chance(0.7)) at += draw.between(0, spread);
    traffic::Request one = request(at, draw.between(1, 60), draw.between(1, 25));
    if (draw.chance(0.5)) one.content.push_back({static_cast<std::uint64_t>(draw.between(1, 3)), draw.between(1, 50)});
    if (!one.content.empty()) one.content[0].tokens = std::min(one.content[0].tokens, one.prompt_tokens);
    one.answer_key = static_cast<std::uint64_t>(100 + i);
    std::vector<Sessions::Turn> turns;
    while (draw.chance(0.2)) turns.push_back({draw.between(1, 20), draw.between(1, 20), draw.between(0, 3000)});
    load.requests.add(std::move(one), std::move(turns));
  }
  return load;
}

}  // namespace kvcast::tests
