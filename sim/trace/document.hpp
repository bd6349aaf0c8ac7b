// What stands where in a synthetic sequence, the same for all layers and heads: needles, decoys, what the question and
// each decode step look for.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "trace/recipe.hpp"
#include "trace/targets.hpp"

namespace kvcast::trace {

// A prompt token that is not haystack.
struct SpecialToken {
  enum class Kind : unsigned char { kPhrase, kValue, kDecoy, kEvidence, kOdd };
  std::int64_t position = 0;
  Kind kind = Kind::kPhrase;
  bool asked = false;  // of a needle that is asked for
  int item = 0;        // needle, spot of evidence, or number of the decoy or odd token
  int index = 0;       // token of the phrase or value; for a decoy: the free question query that it matches; for
                       // evidence: its place from the middle of the spot; for an odd token: its kind
};

// What a captured query looks for.
struct Sought {
  enum class Kind : unsigned char { kFree, kPhrase, kValue, kType, kSpots, kNext };
  static constexpr int kSharedKey = -1;
  Kind kind = Kind::kFree;
  int item = 0;   // needle, for a phrase also what the needles' keys share; first spot of evidence; what follows: its
                  // place in Document::tokens
  int index = 0;  // value token; number of spots from the first on; for a free prompt query: its number, which names
                  // its content
};

struct Document {
  std::vector<SpecialToken> tokens;  // ascending positions
  std::vector<Sought> window;        // of the captured prompt queries, oldest first
  std::vector<Sought> steps;         // of the decode steps
  // Positions that each decode step must attend to; empty for a free step.
  Targets targets;
};

// UserError where the prompt is too short for the task.
Document make_document(const Recipe& recipe, std::int64_t prompt_tokens, int decode_steps, int window,
                       const Stream& stream);

}  // namespace kvcast::trace
