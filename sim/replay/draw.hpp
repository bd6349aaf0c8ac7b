// Rule by which the captured layers and steps of a replay represent all layers, steps and sequences of a run.
//
// A layer is represented by the captured layer nearest to it (the lower one of two equally near), a compressed layer
// only by compressed ones. Each sequence of the batch at each step and layer repeats one whole step of that layer, all
// its heads together, drawn at random from the steps after the warm-up: heads stay correlated, sequences do not.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/random.hpp"
#include "config/model.hpp"
#include "replay/replay.hpp"

namespace kvcast::replay {

// Decode steps after the prompt that are not drawn (cold page caches, FreeKV's first step without speculation), as long
// as others are left.
inline constexpr int kWarmupSteps = 2;

class Draw {
 public:
  // The replay must outlive it; its heads must be the model's. Throws UserError if no captured layer can represent a
  // layer.
  Draw(const ReplayResult& replay, const config::Model& model, int batch, Stream stream);
  // Returns captured steps in their order instead of draws, the same for every sequence: step 0 is captured step
  // `first`, and the last captured step is the last one that heads() may be asked for.
  static Draw in_order(const ReplayResult& replay, const config::Model& model, int batch, int first);

  // [batch × heads] at a layer and a step, which may be any number; valid until the next call. A pure function of its
  // arguments and the stream. Layers that the policy leaves dense return the counts of some captured layer: their cost
  // does not use them.
  std::span<const policy::HeadCounts> heads(int layer, std::int64_t step);
  int batch() const { return batch_; }
  // Returns whether steps differ from each other: false if every captured layer did the same at each step that is
  // drawn.
  bool varies() const { return varies_; }
  // The captured layer that represents this layer of the model.
  int captured_layer(int layer) const { return replay_.layers[nearest_.at(static_cast<std::size_t>(layer))].layer; }
  // Prompt density of the captured layer that represents this one.
  double prompt_density(int layer) const;
  // The context of all counts: those of other steps have been moved there by the policy's growth.
  std::int64_t counted_tokens() const { return counted_tokens_; }

 private:
  Draw(const ReplayResult& replay, const config::Model& model, int batch, int first, std::optional<Stream> stream);

  const ReplayResult& replay_;
  std::optional<Stream> stream_;  // none: steps are in order
  int batch_, first_step_;
  std::int64_t counted_tokens_;
  std::vector<std::size_t> nearest_;  // captured layer by model layer
  // The counts that are drawn from, moved to counted_tokens_: by captured layer, [steps from first_step_ on × heads].
  std::vector<std::vector<policy::HeadCounts>> grown_;
  bool varies_ = false;
  std::vector<policy::HeadCounts> drawn_;
};

}  // namespace kvcast::replay
