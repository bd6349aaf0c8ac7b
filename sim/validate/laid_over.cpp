#include "validate/laid_over.hpp"

namespace kvcast::validate {

using config::Node;

namespace {

// A number for all requests, or a map of a distribution: one replaces the other.
bool is_length(const std::string& key) { return key == "prompt_tokens" || key == "output_tokens"; }

}  // namespace

Node laid_over(const Node& base, const Node& over) {
  Node all = base;
  for (const auto& [key, value] : over.entries()) {
    const Node* const there = all.find(key);
    const bool replaced = there == nullptr || key == "policy" || value.kind() != Node::Kind::kMap ||
                          (is_length(key) && there->kind() != Node::Kind::kMap);
    all = all.with(key, replaced ? value : laid_over(*there, value));
  }
  return all;
}

}  // namespace kvcast::validate
