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

// softmax(q·k / √d) of the prompt queries at positions first … end − 1 of one query head, each over the held tokens up
// to its own position; `visit` gets the query's position and one weight a token. Streamed: a few rows exist at a time,
// never all. The queries must be there (require_prompt_queries).
using VisitRow = std::function<void(std::int64_t position, std::span<const float> weights)>;
void visit_prompt_rows(const trace::Layer& layer, int q_head, std::int64_t first, std::int64_t end, const Held& held,
                       const VisitRow& visit);

// Moments of a window that ends before position `end`, over what is held of the tokens up to there, the window's own
// among them. Sums alone, or all.
enum class Moments { kSums, kAll };
WindowMoments measure_window(const trace::Layer& layer, int q_head, std::int64_t end, int window, const Held& held,
                             Moments which);

// Weights of the query of decode step t over all of `held`, whose last token is at most the step's own. The layer's
// decode scores are used.
void step_weights(const trace::Layer& layer, int q_head, int t, const Held& held, std::vector<float>& out);

}  // namespace kvcast::policy
