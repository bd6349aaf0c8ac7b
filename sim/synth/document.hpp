// The layout of a synthetic sequence, the same for all layers and heads: needles, decoys, and the targets of the
// question and of each decode step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/random.hpp"
#include "synth/recipe.hpp"
#include "trace/targets.hpp"

namespace kvcast::trace {

// A prompt token that is not haystack.
struct SpecialToken {
  enum class Kind : unsigned char { kPhrase, kValue, kDecoy, kEvidence, kOdd };
  std::int64_t position = 0;
  Kind kind = Kind::kPhrase;
  bool asked = false;  // part of a needle that is asked for
  int item = 0;        // needle, spot of evidence, or number of the decoy or odd token
  // Token of the phrase or value; for a decoy: the free question query that it matches; for evidence: the offset from
  // the middle of the spot; for an odd token: its kind.
  int index = 0;
};

// The target of a captured query.
struct Sought {
  enum class Kind : unsigned char { kFree, kPhrase, kValue, kType, kSpots, kNext };
  static constexpr int kSharedKey = -1;
  Kind kind = Kind::kFree;
  // Needle, or kSharedKey in a phrase: the common part of the needles' keys; first spot of evidence; for a
  // continuation: its index in Document::tokens.
  int item = 0;
  // Value token; number of spots from the first on; for a free prompt query: its number, which identifies its content.
  int index = 0;
};

struct Document {
  std::vector<SpecialToken> tokens;  // ascending positions
  std::vector<Sought> window;        // targets of the captured prompt queries, oldest first
  std::vector<Sought> steps;         // targets of the decode steps
  std::vector<std::int64_t> turns;   // first position of each turn; none if there is only one
  // Positions that each decode step must attend to; empty for a free step.
  Targets targets;
};

// `depth` places what is asked for: 0 at the beginning of the haystack, 1 at its end; nothing: anywhere.
//
// Throws UserError if the prompt is too short for the task, or if there is a depth and the recipe seeks anything
// except one needle in one place.
Document make_document(const Recipe& recipe, std::int64_t prompt_tokens, int decode_steps, int window,
                       const Stream& stream, std::optional<double> depth = {});

}  // namespace kvcast::trace
