// Times of an engine's passes, for a scheduler.
#pragma once

#include <cstdint>
#include <span>

#include "base/units.hpp"

namespace kvcast::serving {

// Tokens [cached, cached + added) of a sequence that is being read: of a prompt, or, after a preemption, of the prompt
// and the tokens generated so far.
struct Chunk {
  std::int64_t cached = 0, added = 0;
  std::int64_t known = 0;  // tokens of the sequence so far; the chunk that reaches it samples a token
  bool last() const { return cached + added >= known; }
};

// A sequence that decodes. Policies that evict hold what they kept of the `known` tokens that were read, and all that
// followed.
struct Decoding {
  std::int64_t known = 0;   // tokens that were read before it began to decode: the prompt, more after a preemption
  std::int64_t tokens = 1;  // context, the new token included; more than `known`
};

// Times of consecutive passes of the same sequences. The j-th takes first + j · growth.
struct StepTime {
  Picoseconds first = 0, growth = 0;
  std::int64_t steps = 1;  // number of passes for which this holds
  // Time of the passes 0 … n − 1 together; n ≤ steps.
  Picoseconds sum(std::int64_t n) const { return n * first + growth * (n * (n - 1) / 2); }
  Picoseconds at(std::int64_t j) const { return first + growth * j; }
};

class StepTimes {
 public:
  virtual ~StepTimes() = default;
  // decodes: the sequences that decode, in any order; chunks: those that are read. At least one of the two is not
  // empty. Without chunks each context is one longer in every further pass, and the answer covers the passes until a
  // time is no longer linear; with chunks it covers one.
  virtual StepTime time(std::span<const Decoding> decodes, std::span<const Chunk> chunks) = 0;
};

}  // namespace kvcast::serving
