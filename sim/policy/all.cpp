// The one list of policies, in the order of presentation. A new policy is one file and one line here.
#include "policy/descriptors.hpp"
#include "policy/stages.hpp"

namespace kvcast::policy {
namespace {

std::vector<Descriptor> make_list() {
  std::vector<Descriptor> list = {describe_full(),
                                  describe_exact_topk(),
                                  describe_streaming_llm(),
                                  describe_h2o(),
                                  describe_tova(),
                                  describe_raas(),
                                  describe_d2o(),
                                  describe_keydiff(),
                                  describe_keyl2norm(),
                                  describe_rkv(),
                                  describe_snapkv(),
                                  describe_pyramidkv(),
                                  describe_adakv(),
                                  describe_headkv(),
                                  describe_cake(),
                                  describe_compresskv(),
                                  describe_expected_attention(),
                                  describe_kvzip(),
                                  describe_duo_attention(),
                                  describe_razor_attention(),
                                  describe_quest(),
                                  describe_sparq(),
                                  describe_loki(),
                                  describe_hsa(),
                                  describe_rocketkv(),
                                  describe_rocketkv_mt(),
                                  describe_squeezed_attention(),
                                  describe_double_sparsity(),
                                  describe_infllm_v2(),
                                  describe_seer_attention(),
                                  describe_twilight(),
                                  describe_arkvale(),
                                  describe_shadowkv(),
                                  describe_infinigen(),
                                  describe_freekv(),
                                  describe_omnikv(),
                                  describe_retroinfer(),
                                  describe_magicpig(),
                                  describe_retrieval_attention(),
                                  describe_ctkvr(),
                                  describe_dsa(),
                                  describe_hisparse(),
                                  describe_kivi(),
                                  describe_minference(),
                                  describe_xattention()};
  for (Descriptor& d : list) {
    if (!d.make) {
      d.make = [stages = d.stages](const ParameterValues& values, const Lengths& lengths) {
        Stages both = stages(values, lengths);
        return two_stages(std::move(both.first), std::move(both.second));
      };
    }
    if (d.parameters.empty()) continue;  // full
    d.parameters.push_back({.key = "first_dense_layers",
                            .fallback = std::int64_t{0},
                            .unit = "layers",
                            .meaning = "layers at the start that are left uncompressed",
                            .high = 1000});
    d.uncompressed_layers.emplace_back("first_dense_layers");
    d.make = [inner = std::move(d.make)](const ParameterValues& values, const Lengths& lengths) {
      return dense_first(static_cast<int>(values.integer("first_dense_layers")), inner(values, lengths));
    };
  }
  return list;
}

}  // namespace

const std::vector<Descriptor>& all_policies() {
  static const std::vector<Descriptor> list = make_list();
  return list;
}

}  // namespace kvcast::policy
