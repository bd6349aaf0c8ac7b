// Content as vectors of one KV head: codes of tokens and of the targets of queries. Every code has the length √n for n
// channels.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "base/random.hpp"
#include "synth/document.hpp"
#include "synth/recipe.hpp"

namespace kvcast::trace {

using Code = std::vector<float>;

class CodeBook {
 public:
  CodeBook(const Recipe& recipe, std::size_t channels, const Stream& stream);

  Code identity(int item, bool asked) const;           // code of a needle
  Code shared_key() const;                             // common part of the keys of the needles asked for
  Code phrase(int item, int index, bool asked) const;  // a token of a needle's key phrase
  Code value(int item, int index, bool asked) const;   // a token of a needle's value
  Code odd(int item, int kind) const;                  // a number or name in running text
  Code type() const;                                   // common part of all needles
  Code spot(int item) const;                           // subject of a spot of evidence
  Code evidence(int item, int index) const;            // a token of a spot of evidence
  Code spots(int first, int count) const;              // joint subject of several spots
  Code free(int query) const;                          // target of a free prompt query
  Code with_common(const Code& own) const;             // common target of the head's free queries, plus its own part
  Code decoy(int query) const { return free(query); }

 private:
  Code of_kind(std::uint64_t kind, const Code& own) const;
  Code draw(std::initializer_list<std::uint64_t> name) const;
  Code mix(double share, const Code& a, const Code& b) const;

  const CodeModel& model_;
  double evidence_share_;
  double shared_key_, common_share_;
  std::size_t channels_;
  Stream stream_;
};

// sqrt(Σ x²)
double length(const std::vector<float>& x);

}  // namespace kvcast::trace
