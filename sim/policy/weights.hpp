// Softmax weights of queries over the tokens that a head still holds: what score-based eviction rests on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "policy/layer_input.hpp"

namespace kvcast::policy {

// Positions that one head holds, ascending.
using Held = std::vector<std::int32_t>;

// UserError unless the trace holds the query of every prompt position from `first` on. `who` needs them, as "h2o sums
// the weights of all prompt queries".
void require_prompt_queries(const trace::TraceInfo& info, std::int64_t first, std::string_view who);

using VisitRow = std::function<void(std::int64_t position, std::span<const float> weights)>;

// Weights of prompt queries over what a head holds. Query heads that share a KV head share its held keys, brought
// together once; what they are brought into is used again for the next ones.
class PromptRows {
 public:
  explicit PromptRows(const trace::Layer& layer) : layer_(layer) {}  // which must outlive it

  // The tokens that visits look at from now on; `held` must stay as it is meanwhile.
  void hold(int kv_head, const Held& held);
  // softmax(q·k / √d) of the prompt queries at positions first … end − 1 of one of the KV head's query heads, each over
  // the held tokens up to its own position; `visit` gets the query's position and one weight a token. Streamed: a few
  // rows exist at a time, never all. The queries must be there (require_prompt_queries).
  void visit(int q_head, std::int64_t first, std::int64_t end, const VisitRow& visit);

 private:
  const trace::Layer& layer_;
  const Held* held_ = nullptr;
  MatrixView keys_;
  std::vector<float> gathered_, rows_;
};

// The same for one query head alone.
void visit_prompt_rows(const trace::Layer& layer, int q_head, std::int64_t first, std::int64_t end, const Held& held,
                       const VisitRow& visit);

// Moments of a window that ends before position `end`, over what is held of the tokens up to there, the window's own
// among them. Sums alone, or all. `rows` holds the query head's tokens.
enum class Moments { kSums, kAll };
WindowMoments measure_window(PromptRows& rows, int q_head, std::int64_t end, int window, std::size_t held,
                             Moments which);
WindowMoments measure_window(const trace::Layer& layer, int q_head, std::int64_t end, int window, const Held& held,
                             Moments which);

// Σ of the weights of all prompt queries, one list a query head, one sum a prompt token.
std::vector<std::vector<double>> sum_prompt_weights(const trace::Layer& layer);

// Weights of the query of decode step t over all of `held`, whose last token is at most the step's own. The layer's
// decode scores are used.
void step_weights(const trace::Layer& layer, int q_head, int t, const Held& held, std::vector<float>& out);

}  // namespace kvcast::policy
