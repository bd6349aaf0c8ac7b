// ShadowKV's setting, and the work that depends on its implementation: factorising keys, and fetching the selected
// chunks.
#pragma once

#include <algorithm>

#include "policy/costs.hpp"
#include "policy/group.hpp"

namespace kvcast::policy {

struct ShadowSetting {
  std::int64_t budget = 0, recent = 0, outliers = 0, rank = 0;  // outliers: chunks
  int page = 1;
  Group group = Group::kMaxWeights;
  bool operators = false;         // the released class of PyTorch operators rather than the one with custom kernels
  bool library = false;           // keys are factorised by a library's SVD rather than by second moments
  bool staged = false;            // factors and landmarks are in host memory until all prompts have been read
  std::int64_t refactorised = 0;  // generated tokens after which keys are factorised again; 0: never

  std::int64_t chunks(std::int64_t prompt) const { return std::max<std::int64_t>(0, (prompt - recent) / page); }
  std::int64_t outlier_chunks(std::int64_t prompt) const { return std::min(outliers, chunks(prompt)); }
  std::int64_t chosen(std::int64_t prompt) const {
    return std::min(budget / page, chunks(prompt) - outlier_chunks(prompt));
  }
  // Prompt tokens that are stored exactly: outliers and the local part.
  std::int64_t exact(std::int64_t prompt) const { return prompt - (chunks(prompt) - outlier_chunks(prompt)) * page; }
  std::int64_t landmarks(std::int64_t prompt) const { return chunks(prompt) - outlier_chunks(prompt); }
  double rank_of(const Dims& m) const { return std::min(static_cast<double>(rank), m.kv_heads * m.d); }
};

// Adds the factorisation of the keys of `batch` sequences of `tokens`, on the compute stream after `after`. share: of
// one factorisation, if it happens only every few steps.
void factorise_keys(const ShadowSetting& setting, const Dims& m, double batch, double tokens, double share,
                    LayerOps& ops, OpId after);
// Fetches the values of the selected chunks from the host and reconstructs their keys from the factor, after the
// selection. Returns the op after which both are in the buffers.
OpId bring_chosen(const ShadowSetting& setting, const DecodeLayer& shape, LayerOps& ops, OpId after);
// Copies the prompt's values to the host once they exist, and its index if it is staged there.
void prompt_to_host(const ShadowSetting& setting, const PrefillLayer& shape, LayerOps& ops);
// Adds the work from the query to the selected chunks.
OpId choose_chunks(const ShadowSetting& setting, const DecodeLayer& shape, LayerOps& ops);

}  // namespace kvcast::policy
