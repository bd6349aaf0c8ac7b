// Traces generated from a recipe: any model shape, any context, no file. A layer is generated when it is loaded and is
// a pure function of recipe, shape, seed, layer, head and position.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "synth/head_model.hpp"
#include "synth/recipe.hpp"
#include "trace/trace.hpp"

namespace kvcast::trace {

// Part of every identity; incremented whenever the same recipe and seed give other numbers.
inline constexpr int kGeneratorVersion = 6;

struct SynthShape {
  std::string model;  // name of the model
  int n_layers = 32;
  int captured_layers = 2;  // spread evenly, see spread_layers()
  int n_q_heads = 32;
  int n_kv_heads = 8;
  int head_dim = 128;
  config::Rope rope;
  std::int64_t prompt_tokens = 32768;
  int decode_steps = 16;
  std::uint64_t seed = 1;
  int window = 0;                    // last prompt queries captured; 0: the recipe's default
  std::optional<double> depth = {};  // of the needle, see make_document()
};

// Returns the shape of a model at a context.
SynthShape synth_shape(const config::Model& model, std::int64_t prompt_tokens, int decode_steps, int captured_layers,
                       std::uint64_t seed);

// Returns the middle layer of each of `count` equal stretches of the model.
std::vector<int> spread_layers(int n_layers, int count);

// Returns the kind of each KV head of a layer; the shares of the mix hold over any few layers.
std::vector<HeadKind> head_kinds(const HeadMix& mix, int layer, int n_kv_heads, std::uint64_t seed);

// Throws UserError for impossible shapes (a head_dim that is odd or below 8, more captured layers than there are, a
// prompt too short for the task, a layer larger than the memory of this machine).
std::unique_ptr<Trace> synthesize(const Recipe& recipe, const SynthShape& shape);

}  // namespace kvcast::trace
