// The work that a policy states for one layer of two sequences of the small model, prompts of 100 tokens.
#pragma once

#include "support/ops.hpp"
#include "support/select.hpp"
#include "unit/policy/small_model.hpp"

namespace kvcast::tests {

inline constexpr policy::Lengths kHundred{100, 20};

// The first step; all four KV heads equal.
inline std::vector<graph::Op> first_step(const std::string& name, const std::string& setting,
                                         const policy::HeadCounts& head) {
  const config::Model model = small_model();
  const std::vector<policy::HeadCounts> heads(4, head);
  policy::Recorder ops;
  make(name, setting, kHundred)->decode_layer(policy::EqualBatch(model, 0, 2, {101, kHundred}, heads, false), ops);
  REQUIRE(ops.done_op() >= 0);
  return ops.ops();
}

inline std::vector<graph::Op> after_prompt(const std::string& name, const std::string& setting) {
  const config::Model model = small_model();
  policy::Recorder ops;
  make(name, setting, kHundred)
      ->prefill_layer({.model = &model,
                       .layer = 0,
                       .batch = 2,
                       .prompt_tokens = kHundred.prompt_tokens,
                       .decode_steps = kHundred.decode_steps},
                      ops);
  return ops.ops();
}

// Bytes of an owner over all layers at 110 tokens, a head attending to `attended`.
inline double held_by(const std::string& name, const std::string& setting, const std::string& owner,
                      double attended = 0) {
  const config::Model model = small_model();
  for (const policy::MemoryItem& item : make(name, setting, kHundred)->memory({&model, 2, 110, kHundred, attended})) {
    if (graph::owner_name(item.owner) == owner) return item.bytes;
  }
  return -1;
}

inline void check_kernel(const std::vector<graph::Op>& ops, const std::string& label, double read, double written,
                         double flops) {
  INFO(label);
  const graph::Kernel& work = kernel(only(ops, label));
  CHECK(work.read_bytes == Approx(read));
  CHECK(work.write_bytes == Approx(written));
  CHECK(work.flops == Approx(flops));
}

}  // namespace kvcast::tests
