// Full attention: the uncompressed cache that every policy is measured against.
//
// Selection: all tokens. Cost: reads 2·n_kv·L·d·b a layer and step. Storage: 2·n_kv·L·d·b a layer.
#include "policy/shared_parameters.hpp"
#include "policy/stages.hpp"

namespace kvcast::policy {

Descriptor describe_full() {
  Descriptor d;
  d.name = "full";
  d.sentence = "Keeps every token and attends to every token: the reference in accuracy, memory and time.";
  d.for_latent = true;
  d.category = "none";
  d.paper = "Vaswani et al., Attention Is All You Need, 2017 (arXiv 1706.03762)";
  d.formulas = {"traffic: 2·n_kv·L·d·b a step", "storage: 2·n_kv·L·d·b"};
  d.stages = [](const ParameterValues&, const Lengths&) { return Stages{keep_all(), read_all()}; };
  return d;
}

}  // namespace kvcast::policy
