// One function a policy file: what all.cpp lists.
#pragma once

#include "policy/policy.hpp"

namespace kvcast::policy {

Descriptor describe_full();
Descriptor describe_exact_topk();
Descriptor describe_streaming_llm();
Descriptor describe_snapkv();
Descriptor describe_quest();
Descriptor describe_sparq();
Descriptor describe_loki();
Descriptor describe_hsa();
Descriptor describe_rocketkv();
Descriptor describe_rocketkv_mt();
Descriptor describe_arkvale();
Descriptor describe_freekv();
Descriptor describe_kivi();
Descriptor describe_infinigen();
Descriptor describe_shadowkv();
Descriptor describe_squeezed_attention();
Descriptor describe_ctkvr();
Descriptor describe_magicpig();
Descriptor describe_retrieval_attention();
Descriptor describe_dsa();
Descriptor describe_hisparse();
Descriptor describe_minference();
Descriptor describe_xattention();
Descriptor describe_h2o();
Descriptor describe_tova();
Descriptor describe_keydiff();
Descriptor describe_keyl2norm();
Descriptor describe_raas();
Descriptor describe_d2o();
Descriptor describe_pyramidkv();
Descriptor describe_adakv();
Descriptor describe_headkv();
Descriptor describe_cake();
Descriptor describe_compresskv();
Descriptor describe_duo_attention();
Descriptor describe_razor_attention();
Descriptor describe_rkv();
Descriptor describe_expected_attention();
Descriptor describe_kvzip();
Descriptor describe_double_sparsity();
Descriptor describe_infllm_v2();
Descriptor describe_seer_attention();
Descriptor describe_twilight();
Descriptor describe_omnikv();
Descriptor describe_retroinfer();

// Parameters that several policies share, with the meaning that they have in all of them.
Parameter budget_parameter(std::string meaning, std::int64_t fallback = 2048);
Parameter page_parameter(std::int64_t fallback);
// The names that the policy understands, its default first.
Parameter group_parameter(std::vector<std::string> names);
Parameter window_parameter(std::int64_t fallback);
std::vector<Parameter> pool_parameters(const char* kind, std::int64_t kernel);

// Its first `layers` layers are left uncompressed, as `full`; the others are `inner`'s.
std::unique_ptr<Policy> dense_first(int layers, std::unique_ptr<Policy> inner);

}  // namespace kvcast::policy
