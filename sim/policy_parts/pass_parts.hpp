// Parts of a pass: the sequences that one policy serves, and sequences whose heads attend to other tokens than drawn.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "policy/policy.hpp"

namespace kvcast::policy {

// The same sequences with other counts: heads by KV head, each with `attended(sequence)` tokens; by default all tokens
// of the sequence.
class OtherCounts {
 public:
  explicit OtherCounts(
      const DecodeLayer& shape,
      const std::function<std::int64_t(const Sequence&)>& attended = [](const Sequence& s) { return s.tokens; });
  OtherCounts(const OtherCounts&) = delete;  // the shape refers to the counts
  const DecodeLayer& shape() const { return shape_; }

 private:
  std::vector<HeadCounts> heads_;
  DecodeLayer shape_;
};

// Adds the work of a pass whose sequences belong to different policies: `of` returns the policy of a request. Sequences
// of one policy share its kernels; those of different policies run after each other.
void decode_in_parts(const DecodeLayer& shape, const std::function<const Policy&(const Lengths&)>& of, LayerOps& ops);

// A policy whose setting depends on a request in a way that its work cannot sum over: made anew for each request, once
// for equal lengths.
std::unique_ptr<Policy> made_by_request(std::function<std::unique_ptr<Policy>(const Lengths&)> make);

}  // namespace kvcast::policy
