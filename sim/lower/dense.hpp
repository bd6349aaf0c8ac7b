// The ops of a decoder layer that are the same under every policy: norms, projections, feed-forward, head.
#pragma once

#include "config/model.hpp"
#include "lower/block.hpp"

namespace kvcast::lower {

// All of these do what one GPU does of a model that several share: `model` is the one's (config::rank_of), and sums go
// around between them.

// Before the first layer, where operators run one by one: what makes its inputs of tokens, `rows` in all; else `after`.
graph::OpId enter_layers(Block& block, const config::Model& model, double rows, graph::OpId after);
// Adds the work from the residual stream to appended keys and values: norm, QKV projection, RoPE with append. `rows`
// tokens in all. expanded: cached tokens whose keys and values are made of latent vectors while a prompt is read; 0:
// queries go into the latent space instead.
graph::OpId before_attention(Block& block, const config::Model& model, double rows, graph::OpId after,
                             double expanded = 0);
// Adds the work from the attention output to the residual stream: O projection, norm, and the network or the experts of
// the layer. latent_output: the output is in the latent space.
graph::OpId after_attention(Block& block, const config::Model& model, int layer, double rows, graph::OpId after,
                            bool latent_output = false);
// To the next stage of a pipeline.
graph::OpId hand_over(Block& block, const config::Model& model, double rows, graph::OpId after);
// Final norm, language-model head over `rows` rows, sampling; returns the op after which the tokens are on the host.
graph::OpId head_and_sample(Block& block, const config::Model& model, double rows, graph::OpId after);

// Peak bytes of activations while `rows` tokens pass through a layer at once: gate, up and their product are live
// together, beside the residual, the norm's output, the attention output and the projection (Llama's MLP as in
// Hugging Face transformers). The head adds logits in single precision for `sampled` rows. `in_network`: rows that pass
// through the feed-forward network at a time, at most `rows`; 0: all.
double activation_bytes(const config::Model& model, double rows, double sampled, double in_network = 0);

}  // namespace kvcast::lower
