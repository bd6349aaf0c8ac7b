// Work of an experiment, lowered once: the same for every machine, immutable, shareable between threads.
//
// Decode is represented by windows of steps at a few contexts between the first and the last generated token. The first
// steps of each window are warm-up (caches fill, recalls of the step before are under way) and are not measured.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/cancel.hpp"
#include "config/run.hpp"
#include "lower/block.hpp"
#include "lower/decode.hpp"
#include "lower/flat.hpp"
#include "lower/prefill.hpp"
#include "policy/policy.hpp"
#include "replay/draw.hpp"
#include "replay/replay.hpp"

namespace kvcast::simulate {

// A policy over one text at one length of its prompt.
struct PassReplay {
  const policy::Policy* policy = nullptr;
  const replay::ReplayResult* replay = nullptr;
};

// Inputs of an experiment, which must outlive the call that they are passed to. Lowering ignores the run's hardware.
struct ExperimentInput {
  const config::Run* run = nullptr;
  const policy::Policy* policy = nullptr;
  const replay::ReplayResult* replay = nullptr;  // at the length of the longest prompts
  std::vector<PassReplay> shorter = {};          // at the other lengths, in ascending order
};

// The draw by which the layers and steps of the replay represent those of the run: the same in every command.
replay::Draw draw_counts(const ExperimentInput& input);
// The input in the form that lowering takes, without shorter prompts. Counts come from `draw`, which must outlive the
// setting.
lower::DecodeSetting decode_setting(const ExperimentInput& input, replay::Draw& draw);

// Steps at one context.
struct DecodeSteps {
  lower::FlatStream stream;  // one block per step
  std::int64_t held = 0;     // context that determines the memory, as stated in messages
  std::size_t warmup = 0;    // steps
  double weight = 1;         // weight in the mean over the decode length
  std::size_t measured() const { return stream.blocks.size() - warmup; }
  bool operator==(const DecodeSteps&) const = default;
};

struct Lowered {
  config::Framework framework;
  int batch = 1;
  int gpus = 1;                // of the deployment, on one host
  double tokens_per_pass = 1;  // that a sequence gets, by speculation
  // Time until all prompts have passed all pipeline stages, over the time of one micro-batch whose groups pass them one
  // after the other: each group finishes one stage's time after the one before.
  double micro_batches_behind = 1;
  lower::Works works;  // of all streams
  std::optional<lower::FlatStream> prefill;
  lower::Repetition prompt_groups;  // in the blocks of `prefill`
  // In ascending order of context. The middle one has all measured steps; the others repeat its last ones, or all.
  std::vector<DecodeSteps> contexts;
  std::size_t middle = 0;
  // Steps at the middle context drawn from parts of the replay (replay/parts.hpp), each of which represents the whole.
  std::vector<DecodeSteps> parts;
  double replayed_layers = 1;  // share of the model's layers
  bool full_attention = true;  // whether the policy is `full`, whose kernels every engine has
};

// The parts of an experiment that are lowered.
struct LoweringOptions {
  bool prefill = true, decode = true;
  bool parts = true;  // needed for effects on times
  // Use all warm-up steps that the framework allows, and lower all groups of prompts. One step and four groups are
  // enough unless work is left over from one to the next.
  bool all_warmup = false;
  Cancel cancel = {};
};

// Throws Cancelled.
Lowered lower_experiment(const ExperimentInput& input, const LoweringOptions& options = {});

// Returns whether two lowerings of one run, on different replays, are the same work and so take the same time on every
// machine.
bool same_work(const Lowered& a, const Lowered& b);

// Bytes that it takes in memory.
std::size_t bytes_of(const Lowered& lowered);

}  // namespace kvcast::simulate
