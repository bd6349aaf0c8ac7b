// Times of single passes of an engine, each simulated operation by operation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/cancel.hpp"
#include "config/run.hpp"
#include "engine/engine.hpp"
#include "graph/source.hpp"
#include "hardware/cost_model.hpp"
#include "lower/pass.hpp"
#include "policy/policy.hpp"
#include "replay/replay.hpp"
#include "serving/step_times.hpp"
#include "simulate/lowered.hpp"

namespace kvcast::simulate {

// Inputs of passes, which must outlive the call that they are passed to.
struct PassInput {
  const config::Run* run = nullptr;  // its workload is not used
  // One replay for each length, in ascending order. Counts of sequences of other lengths lie on the line between the
  // two nearest.
  std::vector<PassReplay> replays;
  // The same on further texts, over all of which times are means.
  std::vector<std::vector<PassReplay>> other_texts = {};
};

// Seconds of passes in a steady state, mean over a few steps that are drawn from the replays.
class PassTimes {
 public:
  PassTimes(const PassInput& input, const config::Hardware& hardware, Cancel cancel = {});
  ~PassTimes();
  PassTimes(const PassTimes&) = delete;

  // Passes of sequences that decode and chunks of sequences that are read.
  struct Passes {
    std::span<const serving::Decoding> decodes;
    std::span<const serving::Chunk> chunks;
    bool without_pairs = false;  // attention over prompts multiplies nothing: what a pass takes by its rows alone
    bool reads_all = false;      // all tokens of the chunks enter the model, whatever the policy leaves out
  };
  double pass(const Passes& of) const;  // mean over the texts
  // Work from now on stops on this request.
  void stop_on(const Cancel& cancel);
  // A pass in which this many sequences decode, without attention, the policy's work and a draft's.
  double bare(int sequences) const;
  // The head and the choice of this many tokens.
  double head(int rows) const;

  int queries() const { return setting_.queries(); }  // rows of a sequence that decodes
  double tokens_per_pass() const { return setting_.speculation ? setting_.speculation->tokens_per_pass : 1; }

  const policy::Policy& policy() const;
  const config::Model& rank() const { return setting_.rank; }
  const config::Framework& framework() const { return *setting_.framework; }
  // Share of a prompt of so many tokens that enters the model.
  double read(std::int64_t known) const;
  // Returns whether a sequence of which so many tokens are read is served as by the uncompressed cache.
  bool covers(std::int64_t known) const;
  // Tokens up to which such a sequence, if not covered, attends to all that it holds; 0: none.
  std::int64_t fill(std::int64_t known) const;

 private:
  class Source;
  double on_own_text(const Passes& of) const;
  struct Timed {
    double seconds = 0, lag = 0;  // lag: growth of the work that passes leave to later ones, per pass
  };
  Timed time(graph::WorkSource& source, std::size_t warmup) const;

  const PassInput input_;
  lower::PassSetting setting_;
  hardware::CostModel costs_;
  engine::System system_;
  Cancel cancel_;
  struct Counts;
  std::vector<std::unique_ptr<Counts>> counts_;     // by replay
  std::vector<std::unique_ptr<PassTimes>> others_;  // on texts whose counts differ
};

}  // namespace kvcast::simulate
