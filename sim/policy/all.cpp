// The one list of policies, in the order of presentation. A new policy is one file and two lines here.
#include "base/error.hpp"
#include "policy/fields.hpp"
#include "policy/host_pages.hpp"
#include "policy/stages.hpp"

namespace kvcast::policy {
// Each is defined in the file of its policy.
Descriptor describe_full();
Descriptor describe_exact_topk();
Descriptor describe_streaming_llm();
Descriptor describe_h2o();
Descriptor describe_tova();
Descriptor describe_raas();
Descriptor describe_d2o();
Descriptor describe_keydiff();
Descriptor describe_keyl2norm();
Descriptor describe_rkv();
Descriptor describe_snapkv();
Descriptor describe_pyramidkv();
Descriptor describe_adakv();
Descriptor describe_headkv();
Descriptor describe_cake();
Descriptor describe_compresskv();
Descriptor describe_expected_attention();
Descriptor describe_kvzip();
Descriptor describe_duo_attention();
Descriptor describe_razor_attention();
Descriptor describe_quest();
Descriptor describe_sparq();
Descriptor describe_loki();
Descriptor describe_hsa();
Descriptor describe_rocketkv();
Descriptor describe_rocketkv_mt();
Descriptor describe_squeezed_attention();
Descriptor describe_double_sparsity();
Descriptor describe_infllm_v2();
Descriptor describe_seer_attention();
Descriptor describe_twilight();
Descriptor describe_arkvale();
Descriptor describe_shadowkv();
Descriptor describe_infinigen();
Descriptor describe_freekv();
Descriptor describe_omnikv();
Descriptor describe_retroinfer();
Descriptor describe_magicpig();
Descriptor describe_retrieval_attention();
Descriptor describe_ctkvr();
Descriptor describe_dsa();
Descriptor describe_hisparse();
Descriptor describe_kivi();
Descriptor describe_minference();
Descriptor describe_xattention();

namespace {

void add_page_cache(Descriptor& d) {
  d.parameters.push_back(whole("page_cache", 0, "tokens",
                               "tokens of each head that stay on the GPU when a selection gives them up, the least "
                               "recently used going first; 0: none, as published"));
  d.make = [inner = std::move(d.make), page = d.recall_page](const ParameterValues& values, const Lengths& lengths) {
    const KeptPages kept{values.integer("page_cache"), page(values)};
    if (kept.tokens == 0) return inner(values, lengths);
    if (kept.page == 0) throw UserError(values.where("page_cache"), "page_cache: nothing is in host memory");
    if (kept.tokens < kept.page) {
      throw UserError(values.where("page_cache"),
                      fmt::format("page_cache: {} tokens hold no page of {}; 0 keeps none", kept.tokens, kept.page));
    }
    return keep_recalled(kept, inner(values, lengths));
  };
}

constexpr Descriptor (*kDescribe[])() = {describe_full,
                                         describe_exact_topk,
                                         describe_streaming_llm,
                                         describe_h2o,
                                         describe_tova,
                                         describe_raas,
                                         describe_d2o,
                                         describe_keydiff,
                                         describe_keyl2norm,
                                         describe_rkv,
                                         describe_snapkv,
                                         describe_pyramidkv,
                                         describe_adakv,
                                         describe_headkv,
                                         describe_cake,
                                         describe_compresskv,
                                         describe_expected_attention,
                                         describe_kvzip,
                                         describe_duo_attention,
                                         describe_razor_attention,
                                         describe_quest,
                                         describe_sparq,
                                         describe_loki,
                                         describe_hsa,
                                         describe_rocketkv,
                                         describe_rocketkv_mt,
                                         describe_squeezed_attention,
                                         describe_double_sparsity,
                                         describe_infllm_v2,
                                         describe_seer_attention,
                                         describe_twilight,
                                         describe_arkvale,
                                         describe_shadowkv,
                                         describe_infinigen,
                                         describe_freekv,
                                         describe_omnikv,
                                         describe_retroinfer,
                                         describe_magicpig,
                                         describe_retrieval_attention,
                                         describe_ctkvr,
                                         describe_dsa,
                                         describe_hisparse,
                                         describe_kivi,
                                         describe_minference,
                                         describe_xattention};

std::vector<Descriptor> make_list() {
  std::vector<Descriptor> list;
  for (const auto describe : kDescribe) {
    list.push_back(describe());
  }
  for (Descriptor& d : list) {
    if (!d.make) {
      d.make = [stages = d.stages](const ParameterValues& values, const Lengths& lengths) {
        Stages both = stages(values, lengths);
        return two_stages(std::move(both.first), std::move(both.second));
      };
    }
    if (d.recall_page) add_page_cache(d);
    if (d.name == "full") continue;  // no layer of it is compressed
    d.parameters.push_back(
        whole("first_dense_layers", 0, "layers", "layers at the start that are left uncompressed", 0, 1000));
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
