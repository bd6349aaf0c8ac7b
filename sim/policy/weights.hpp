// Softmax weights of queries over the tokens that a head still keeps, the basis of score-based eviction.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "policy/layer_input.hpp"

namespace kvcast::policy {

// Positions that one head keeps, ascending.
using Held = std::vector<std::int32_t>;

// Throws UserError unless the trace contains the query of every prompt position from `first` on. `who`: the start of
// the message, such as "h2o sums the weights of all prompt queries".
void require_prompt_queries(const trace::TraceInfo& info, std::int64_t first, std::string_view who);

using VisitRow = std::function<void(std::int64_t position, std::span<const float> weights)>;

// Weights of prompt queries over the tokens of a head. Query heads that share a KV head share its held keys, which are
// gathered once into a buffer that is reused.
class PromptRows {
 public:
  explicit PromptRows(const trace::Layer& layer) : layer_(layer) {}  // `layer` must outlive the object

  // Sets the tokens of the following visits; `held` must not change in between.
  void hold(int kv_head, const Held& held);
  // Computes softmax(q·k / √d) of the prompt queries at positions first … end − 1 of one of the KV head's query heads,
  // each over the held tokens up to its own position. `visit` gets the query's position and one weight per token. Only
  // a few rows are in memory at a time. The trace must contain the queries (require_prompt_queries).
  void visit(int q_head, std::int64_t first, std::int64_t end, const VisitRow& visit);

 private:
  const trace::Layer& layer_;
  const Held* held_ = nullptr;
  MatrixView keys_;
  std::vector<float> gathered_, rows_;
};

// The same for a single query head.
void visit_prompt_rows(const trace::Layer& layer, int q_head, std::int64_t first, std::int64_t end, const Held& held,
                       const VisitRow& visit);

// Moments of a window that ends before position `end`, over the first `held` of the held tokens, which include the
// window's own: the sums alone, or all moments. `rows` must have the query head's tokens.
enum class Moments { kSums, kAll };
WindowMoments measure_window(PromptRows& rows, int q_head, std::int64_t end, int window, std::size_t held,
                             Moments which);
WindowMoments measure_window(const trace::Layer& layer, int q_head, std::int64_t end, int window, const Held& held,
                             Moments which);

// Σ of the weights of all prompt queries: one list per query head, one sum per prompt token.
std::vector<std::vector<double>> sum_prompt_weights(const trace::Layer& layer, int threads);

// Weights of the query of decode step t over all of `held`, whose last token is at most the step's own. Uses the
// layer's decode scores.
void step_weights(const trace::Layer& layer, int q_head, int t, const Held& held, std::vector<float>& out);

}  // namespace kvcast::policy
