// Speculative decoding: a draft proposes tokens, and one pass of the model verifies them together (Leviathan et al.,
// arXiv 2211.17192). The number of tokens that are accepted is stated, not simulated: it depends on texts.
#pragma once

#include <optional>
#include <string_view>

#include "config/deployment.hpp"
#include "config/model.hpp"
#include "config/section.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

struct Speculation {
  // A table of the sequence's own n-grams, a smaller model, the model's layer for next tokens (DeepSeek-V3, arXiv
  // 2412.19437), a layer on the model's features (EAGLE-3, arXiv 2503.01840).
  enum class Kind { kNgram, kDraft, kMtp, kEagle };
  Kind kind = Kind::kNgram;
  int tokens = 1;              // drafted for a pass
  double tokens_per_pass = 1;  // expected, the pass's own included
  std::optional<Model> draft;  // whole: the smaller model, or the one layer; none of n-grams
  int features = 0;            // vectors of the model's width from which a layer's input is made
  int head = 0;                // rows of a head of the draft's own; 0: it has the model's, or that of its file
  bool packed = true;          // queries of a sequence share what attention and indexes read

  int verified() const { return tokens + 1; }  // rows of a sequence in a pass
  bool one_layer() const { return features > 0; }
};
std::string_view speculation_name(Speculation::Kind kind);

// Reads `speculation:` of a run. Throws UserError for invalid input, for acceptance and length together, and if the
// draft cannot be split as `deployment` asks.
Speculation read_speculation(Section section, const Model& model, const Deployment& deployment);

// The same for the key of a run; nothing if it is not there.
std::optional<Speculation> speculation_of(Section& run, const Model& model, const Deployment& deployment);

// Throws UserError if the draft cannot attend to so many tokens.
void check_context(const Speculation& speculation, std::int64_t tokens, const SourceLocation& where);

// One GPU's part of the draft.
Model draft_rank(const Speculation& speculation, const Deployment& deployment);
// Bytes of weights that the draft adds to one GPU: a layer shares the model's embedding, and its head unless it has
// one.
double draft_weight_bytes(const Speculation& speculation, const Model& rank);

}  // namespace kvcast::config
