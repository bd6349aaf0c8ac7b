#include "config/speculation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/error.hpp"
#include "config/keys.hpp"
#include "config/text.hpp"

namespace kvcast::config {
namespace {

constexpr const char* kDrafters[] = {"ngram", "draft", "mtp", "eagle"};
constexpr int kMostDrafted = 64;
constexpr int kMtpFeatures = 2, kEagleFeatures = 3;

// A number, or a list of them.
std::vector<double> read_several(Section& section, const Key<Speculation>& key) {
  const Node node = section.node(key.name);
  const auto read = [&](const Node& one) {
    return read_quantity(one, key.name, key.slot.limits.dimension, key.slot.limits.low, key.slot.limits.high);
  };
  if (node.kind() != Node::Kind::kList) return {read(node)};
  if (node.items().empty()) throw UserError(node.where(), fmt::format("{}: the list is empty", key.name));
  std::vector<double> out;
  for (const Node& item : node.items()) out.push_back(read(item));
  return out;
}

// 1 + a1 + a1 a2 + ...: a token counts if all before it were accepted. The last of a list holds for further ones.
double expected_tokens(const std::vector<double>& acceptance, int tokens) {
  double sum = 1, all = 1;
  for (int i = 0; i < tokens; ++i) {
    all *= acceptance[std::min(static_cast<std::size_t>(i), acceptance.size() - 1)];
    sum += all;
  }
  return sum;
}

// Either key says how many tokens a pass yields.
void read_length(Section& section, const Key<Speculation>& key, Speculation& out) {
  if (!section.has(key.name)) return;
  if (section.has("acceptance"))
    throw UserError(section.where("length"), "speculation: give either acceptance or length");
  const std::vector<double> all = read_several(section, key);
  const std::size_t at = all.size() == 1 ? 0 : static_cast<std::size_t>(out.tokens) - 1;
  if (at >= all.size()) {
    throw UserError(section.where("length"),
                    fmt::format("length: {} values, but {} tokens are drafted", all.size(), out.tokens));
  }
  out.tokens_per_pass = all[at];
  if (out.tokens_per_pass > out.tokens + 1) {
    throw UserError(section.where("length"),
                    fmt::format("length: {} tokens a pass, but it verifies {}", out.tokens_per_pass, out.tokens + 1));
  }
}

void read_acceptance(Section& section, const Key<Speculation>& key, Speculation& out) {
  if (section.has("length")) return;
  if (!section.has(key.name)) throw UserError(section.where(), "speculation: give acceptance, or length");
  out.tokens_per_pass = expected_tokens(read_several(section, key), out.tokens);
}

constexpr const char* kReads[] = {"once", "each"};
void read_reads(Section& section, const Key<Speculation>& key, Speculation& out) {
  out.packed = section.choice(key.name, key.slot.names(), kReads[0]) == kReads[0];
}

void read_draft(Section& section, const Key<Speculation>& key, Speculation& out) {
  out.draft = read_model(section.node(key.name));
}

constexpr Key<Speculation> kSpeculationKeys[] = {
    {"kind", among<kDrafters>(need<&Speculation::kind>),
     "what drafts: the sequence's own n-grams, a smaller model, the model's layer for next tokens, or a layer of "
     "EAGLE-3"},
    {"tokens", within(1, kMostDrafted, need<&Speculation::tokens>), "drafted for each pass"},
    {"length", within(1, kMostDrafted + 1, by(read_length, own<Speculation>(KeyShape::Type::kNumber))),
     "tokens that a pass yields, the model's own included, in place of `acceptance`; a list has them for 1, 2, ... "
     "drafted tokens"},
    {"acceptance",
     within(Limits{0, 1, Dimension::kFraction}, by(read_acceptance, own<Speculation>(KeyShape::Type::kQuantity))),
     "share of drafted tokens that are accepted, given that those before them were; a list has one for each, the last "
     "one holds for further tokens"},
    {"kv_reads", among<kReads>(by(read_reads, own<Speculation>(KeyShape::Type::kText, kReads[0]))),
     "`once`: the queries of a sequence share one read of its cache, and of the index that they select from; `each`: "
     "kernels read for each query"},
    {"model",
     when([](const Speculation& s) { return s.kind == Speculation::Kind::kDraft; },
          by(read_draft, own<Speculation>(KeyShape::Type::kAny))),
     "the smaller model, as `model:` of a run names one"},
    {"vocab",
     when([](const Speculation& s) { return s.kind == Speculation::Kind::kEagle; },
          within(0, 100'000'000, into<&Speculation::head>)),
     "rows of the draft's own head; 0: it has the model's"}};

// The model's own layer for next tokens, or EAGLE's, which has a network in place of experts.
Model one_layer_of(const Model& model, Speculation::Kind kind) {
  Model layer = model;
  layer.layers = 1, layer.blocks.clear(), layer.recurrence.reset();
  layer.sliding_window = 0, layer.full_every = 1, layer.residuals = {};
  if (layer.compressed) layer.compressed->layers = "W";
  if (!layer.experts) return layer;
  layer.experts->dense_layers = 0, layer.experts->every = 1;
  if (kind == Speculation::Kind::kMtp) return layer;
  if (layer.ffn == 0) layer.ffn = static_cast<int>(layer.experts->active) * layer.experts->ffn;
  layer.experts.reset();
  return layer;
}

}  // namespace

std::string_view speculation_name(Speculation::Kind kind) { return kDrafters[static_cast<std::size_t>(kind)]; }

Speculation read_speculation(Section section, const Model& model, const Deployment& deployment) {
  Speculation out;
  read_keys(section, kSpeculationKeys, out);
  section.finish();
  if (deployment.pipeline_parallel > 1)
    throw UserError(section.where(), "speculation: not with deployment.pipeline_parallel");
  if (out.kind == Speculation::Kind::kMtp) out.features = kMtpFeatures;
  if (out.kind == Speculation::Kind::kEagle) out.features = kEagleFeatures;
  if (out.one_layer()) out.draft = one_layer_of(model, out.kind);
  if (!out.draft) return out;
  out.draft->cache = model.cache;
  try {
    draft_rank(out, deployment);
  } catch (const std::invalid_argument& why) {
    throw UserError(section.where(), fmt::format("speculation: {} cannot be split over {} GPUs: {}", out.draft->title,
                                                 deployment.tensor_parallel, why.what()));
  }
  return out;
}

Shapes speculation_shapes() { return {{"speculation", shapes_in(kSpeculationKeys)}}; }

std::optional<Speculation> speculation_of(Section& run, const Model& model, const Deployment& deployment) {
  if (!run.has("speculation")) return {};
  return read_speculation(run.section("speculation", "speculation"), model, deployment);
}

void check_context(const Speculation& speculation, std::int64_t tokens, const SourceLocation& where) {
  if (!speculation.draft || tokens <= speculation.draft->max_context) return;
  throw UserError(where, fmt::format("speculation: {} tokens are above the {} that {} can attend to", tokens,
                                     speculation.draft->max_context, speculation.draft->title));
}

Model draft_rank(const Speculation& speculation, const Deployment& deployment) {
  return rank_model(deployment, *speculation.draft);
}

double draft_weight_bytes(const Speculation& speculation, const Model& rank) {
  if (!speculation.one_layer()) return rank.weight_bytes();
  Model without = rank;
  without.layers = 0;
  const double hidden = rank.hidden, kept = Model::kElementBytes;
  return rank.weight_bytes() - without.weight_bytes() + speculation.features * hidden * hidden * kept +
         static_cast<double>(speculation.head) / rank.ranks * hidden * kept;
}

}  // namespace kvcast::config
