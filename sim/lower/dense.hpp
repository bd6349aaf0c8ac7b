// Ops of a decoder layer that are the same under every policy: norms, projections, feed-forward network, head.
#pragma once

#include <cstdint>
#include <span>

#include "config/model.hpp"
#include "lower/block.hpp"

namespace kvcast::lower {

// All functions add the work of one GPU among those that share a model: `model` is this GPU's part (config::rank_of),
// and the GPUs exchange partial sums.

// Adds the work before the first layer that makes its inputs from `rows` tokens: separate operators if the framework is
// unfused, and the all-reduce of GPUs that share a layer. Returns `after` if there is none.
graph::OpId enter_layers(LoweredBlock& block, const config::Model& model, double rows, graph::OpId after);
// Multiplies so many queries or keys by TurboQuant's rotation.
graph::OpId rotate(LoweredBlock& block, const char* label, const config::Model& model, double vectors,
                   graph::OpId after);
// Adds the work from the residual stream to appended keys and values of `rows` tokens in all: norm, QKV projection,
// RoPE with append; of compressed attention also entries and the queries of the index. expanded: cached tokens whose
// keys and values are computed from latent vectors while a prompt is read; 0: queries are projected into the latent
// space instead.
graph::OpId before_attention(LoweredBlock& block, const config::Model& model, int layer, double rows, graph::OpId after,
                             double expanded = 0);
// Adds the mixer of a layer without attention: projections, convolution, recurrence, gated norm, output. steps:
// sequences that decode, with `queries` rows each, after each of which a state is kept; prompts: tokens of each
// sequence of which a part of the prompt is read.
graph::OpId recurrence(LoweredBlock& block, const config::Model& model, double steps,
                       std::span<const std::int64_t> prompts, graph::OpId after, int queries = 1);
// Adds what follows the mixer's output projection: its sum over GPUs, and the norm and network of the layer, if it has
// one.
graph::OpId after_mixer(LoweredBlock& block, const config::Model& model, int layer, double rows, graph::OpId after);
// Adds the work from the attention output to the residual stream: O projection, norm, and the network or the experts of
// the layer. latent_output: the attention output is in the latent space.
graph::OpId after_attention(LoweredBlock& block, const config::Model& model, int layer, double rows, graph::OpId after,
                            bool latent_output = false);
// Adds the transfer to the next stage of a pipeline.
graph::OpId hand_over(LoweredBlock& block, const config::Model& model, double rows, graph::OpId after);
// Adds the final norm, the language-model head over `rows` rows, and sampling.
graph::OpId choose_tokens(LoweredBlock& block, const config::Model& model, double rows, graph::OpId after);
// The same, and the tokens' way to the host. Returns the op after which they are there.
graph::OpId head_and_sample(LoweredBlock& block, const config::Model& model, double rows, graph::OpId after);

// Peak bytes of activations while `rows` tokens pass through a layer at once. Gate, up and their product are live
// together, in addition to the residual, the norm's output, the attention output and the projection (Llama's MLP in
// Hugging Face transformers). Outputs of blocks that residuals weigh are kept as well. The head adds logits in single
// precision for `sampled` rows. `in_network`: rows that pass through the feed-forward network at a time, at most
// `rows`; 0: all.
double activation_bytes(const config::Model& model, double rows, double sampled, double in_network = 0);

}  // namespace kvcast::lower
