// A recipe: the statistics of attention heads and the task that a synthetic trace is made from.
//
// Values start from a model of grouped-query attention fitted so that compression policies rank as in published
// long-context benchmarks; each can be changed in traces/recipes/NAME.yaml under the section and key named here.
// Lengths of vectors count channels of unit variance; logits are q·k/√d. N stands for a standard normal.
#pragma once

#include <string>

#include "base/error.hpp"

namespace kvcast::trace {

// Shares of the KV heads; they add up to 1. About a quarter of the heads retrieve (DuoAttention, arXiv:2410.10819).
struct HeadMix {
  double retrieval = 0.375;  // match content anywhere in the context
  double local = 0.375;      // attend to the tokens just before
  double streaming = 0.25;   // attend to the first token and little else
  double least_share = 0.5;  // of a retrieval group's query heads that retrieve: from this ...
  double most_share = 1;     // ... to this, one at least; the others idle
};

// Which RoPE pairs carry what.
struct ChannelModel {
  double content_share = 0.40625;  // slowest pairs, which carry content ...
  double content_turn = 1.75;      // ... unless they turn by more radians than this over the prompt
  double outlier_share = 0.21875;  // slowest pairs, among which outlier channels lie
  double outlier_turn = 0.7;       // unless they turn by more
  double outliers = 4;             // outlier channels for 128 channels, on average ...
  int outliers_spread = 2;         // ... over heads, evenly from so many fewer to so many more
  double recency_shortest = 32;    // tokens: wavelengths of the pairs that tell how long ago
  double recency_longest = 6000;
};

// Keys: mean + scale · content, before RoPE.
struct KeyModel {
  double mean = 0.4;           // sd of a channel's mean
  double scale_spread = 0.32;  // log-normal spread of channel scales
  double outlier_mean = 2.33;  // of outlier channels, opposed to the queries' there
  double outlier_scale = 0.35;
  double recency_mean = 1.2;  // length of the mean of a recency pair, heads of groups that retrieve
  // And of other groups. Queries far apart are alike in all heads (CTkvr, observation 1: above 0.8 within 1000 tokens):
  // in heads that look near, too, what turns with the position is the smaller part of a query. Its match with the keys
  // is given (RecencyModel), so that the keys' part is the longer one, and QueryModel::other_outlier the constant.
  double other_recency_mean = 2.2;
  double recency_scale = 0.35;
  double amplitude_spread = 0.15;  // log-normal spread of a token's content
  double topic_share = 0.16;       // of the content's variance that a topic's tokens share
  int topic_tokens = 48;
  double topic_memory = 0.6;  // correlation of a topic with the one before
};

// Queries: mean + strength · channel weights · what is sought, before RoPE.
struct QueryModel {
  double mean = 0.35;         // sd of a channel's mean
  double jitter = 0.14;       // and of its change from query to query
  double outlier = 9.2;       // length on each of 4 outlier channels of 128, heads of groups that retrieve
  double other_outlier = 20;  // and of other groups
  double outlier_spread = 0.1;
  double weight_spread = 0.25;  // log-normal spread of a head's channel weights
  double strength = 2.45;       // sd of a retrieval head's logits over unrelated tokens
  double strength_spread = 0.15;
  // Of `strength`. Heads of a retrieval group that do not retrieve read the same hidden state and seek the same, too
  // weakly to find it. Were they blind to it, their queries would be most like those next to them, whatever is sought,
  // and CTkvr (max over the group) would never get to the prompt queries that seek the like.
  double idle_strength = 0.4;
  double other_strength = 0.05;  // heads of other groups
  double target = 0.92;          // share of the step's target in what is sought
  double drift = 0.39;           // share of a slowly changing rest
  double drift_memory = 0.95;    // its correlation from query to query
};

// Logit of a key without content at the query's own position, above keys far away.
struct RecencyModel {
  double retrieval = 0.84;
  double idle = 1.68;  // heads of a retrieval group that do not retrieve
  double local = 16;
  double streaming = 14;
  double spread = 0.2;  // log-normal, local heads
  // Tokens before its own that a local or streaming head prefers: most heads put little attention on the current token
  // (Clark et al. 2019, arXiv:1906.04341, section 3.1).
  double back = 8;
};

// The first token (Xiao et al. 2024, arXiv:2309.17453): logit above the mean token.
struct SinkModel {
  double retrieval = 12.39;
  double local = 17.5;
  double streaming = 18.5;
  double idle_factor = 1.1;  // of the queries' outliers in a retrieval group's idle heads
  double key_noise = 0.3;
  double value_scale = 0.1;  // its value is short: what is parked there adds little to the output
};

// How content is coded, as shares of variance.
struct CodeModel {
  double type = 0.15;       // of a needle's identity that all needles have in common
  double phrase = 0.68;     // of a key phrase token that is the needle's identity
  double item = 0.5;        // of the first value token that is the needle's identity,
  double item_decay = 2.5;  // falling by e over so many value tokens
  // Of the rest of a value token that is common to tokens of its kind (a digit, two letters of a name). Where the last
  // queries of a prompt of UUIDs serve as centroids, those of one or two pairs find 0.3 to 0.4 of another pair and
  // those of thirty find 0.86 (CTkvr, table 14): queries at tokens of a kind seek much the same.
  double token = 0.5;
  int token_kinds = 16;
  double odd = 0.02;  // of running text's tokens that are of these kinds too: its numbers and names
};

struct NeedleModel {
  double amplitude = 1.29;         // of its keys' content, at 48 content channels
  double amplitude_spread = 0.11;  // over KV heads
  double content = 0.96;           // length of the code in the content
  double noise = 0.21;
  double distractor = 0.8;  // amplitude of needles and spots that are not asked for, of those that are
  // A model that was trained for a context finds its needles there: share by which keys and queries make up for what a
  // prompt of another length than 16384 adds to the softmax's denominator (its logarithm), and for what RoPE takes from
  // a match at a distance in the model's slowest pairs.
  double trained = 1;
};

// The last tokens of the prompt ask for the needles.
struct QuestionModel {
  int tokens = 32;
  double strength = 0.7;  // of a decode query's
  double strength_spread = 0.8;
  int key_queries = 3;     // for each needle asked for: seek its key phrase
  double key_share = 0.9;  // length of the needle's identity in them
  double key_noise = 0.4;
  int value_queries = 1;  // seek the first value token, over all needles
  // Of the variance of what a head seeks where nothing is asked for, that is always the same: queries far apart are
  // alike (CTkvr, observation 1), and a head's best 256 tokens of 32 steps are no more than 1200 (RocketKV,
  // arXiv:2502.14051, section 3.1).
  double common_share = 0.5;
  int earlier = 0;       // it asks for the needles that stand so many further on: those of an earlier turn
  int type_queries = 0;  // seek what all needles have in common, and none in particular
};

// Tokens that look to the question like what is asked for, and are not.
struct DecoyModel {
  double count = 80;       // in a prompt of 16384 tokens
  double growth = 0.25;    // count grows with this power of the prompt
  int queries = 20;        // of the question, that decoys match
  double amplitude = 0.9;  // of a needle's
  double amplitude_spread = 0.38;
};

// Pieces of text that an answer rests on: tokens around a middle that share what the spot is about.
struct EvidenceModel {
  double share = 0.8;       // of a token's variance that is the spot's
  double amplitude = 0.85;  // of a needle's
  double middle = 1.3;      // amplitude of the middle token, of the others'
};

// What the sequence is about.
struct Task {
  std::string name;               // written into the trace
  std::string haystack = "text";  // text | repeated
  int repeat_tokens = 25;         // period of a repeated haystack
  double repeat_share = 0.95;     // of its content's variance that repeats
  double earliest = 0;            // needles lie from this share of the haystack on ...
  double latest = 1;              // ... to this one
  int needles = 1;                // asked for, one after the other; 0: free generation
  int distractors = 0;            // needles (or spots of evidence) that are not asked for ...
  double distractor_density = 0;  // ... and as many more for 1000 tokens of the prompt
  int key_tokens = 4;
  int gap_tokens = 1;       // between key phrase and value
  int value_tokens = 22;    // one decode step each
  double shared_key = 0;    // share of identity that the needles asked for have in common (several values of a key);
                            // the question names what they share, and none of them
  int pause_steps = 0;      // free decode steps after each needle
  int copies = 1;           // places where each needle stands; more than one: words without a key phrase, anywhere
  double copy_density = 0;  // such places for 1000 tokens of the prompt, of the most frequent word;
  double copy_decay = 0;    // of the k-th one, falling by this power of k
  int spots = 0;            // of evidence, instead of needles: each step attends to several of them at once
  int spot_radius = 6;      // tokens to both sides of a spot's middle
  int spot_steps = 3;       // decode steps that rest on evidence
  int spots_a_step = 0;     // one after the other; 0: all of them at each step
  // A long generation: sections of so many decode steps, each opened by spot_steps steps that rest on evidence in the
  // prompt (section after section on the next spots), then by back_steps that rest on how an earlier section began.
  int section_steps = 0;  // 0: one answer, no sections
  int back_steps = 0;
  int back_reach = 1;  // sections that the earlier one lies back at most; the share of distance k falls as 1 / k
};

struct Recipe {
  std::string name;
  std::string description;
  int window = 128;  // last prompt queries that are captured
  HeadMix heads;
  ChannelModel channels;
  KeyModel keys;
  QueryModel queries;
  RecencyModel recency;
  SinkModel sink;
  CodeModel codes;
  NeedleModel needles;
  QuestionModel question;
  DecoyModel decoys;
  EvidenceModel evidence;
  Task task;
};

// Walks over every number of a recipe with its place in the file and its range: the reader, the identity and the tests
// share this one list.
class ParameterVisitor {
 public:
  virtual ~ParameterVisitor() = default;
  virtual void section(const char* name) = 0;  // of the numbers that follow
  virtual void number(const char* key, double& value, double low, double high) = 0;
  virtual void integer(const char* key, int& value, int low, int high) = 0;
};
void visit_parameters(Recipe& recipe, ParameterVisitor& visitor);

// Reads a recipe; UserError with file:line:col for unknown keys, wrong types, values out of range, shares that do not
// add up.
Recipe read_recipe(const std::string& path);

// What does not follow from the range of a single number (shares that add up, a question with room for what it asks):
// UserError at `where`.
void check_recipe(const Recipe& recipe, const SourceLocation& where);

// traces/recipes/NAME.yaml from the working directory, then from the source tree; a name with '/' or ending in .yaml is
// a path. UserError lists the recipes that exist.
std::string find_recipe(const std::string& name, const SourceLocation& asked_at = {});

// All content as text, defaults included: equal recipes give equal text.
std::string canonical(const Recipe& recipe);

}  // namespace kvcast::trace
