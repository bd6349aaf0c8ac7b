#include "policy_parts/host_pages.hpp"
#include "policy/fields.hpp"

namespace kvcast::policy {

namespace {

// bytes: those of keys and values; pages: their number. In NHD the keys and the values of a page are two pieces, in HND
// one.
void back_up(double bytes, double pages, HostLayout layout, LayerOps& ops, OpId after) {
  if (layout == HostLayout::kHnd) {
    after = ops.kernel(Lane::kBackup, Kind::kConvert, "transpose pages", Kernel{KernelClass::kConvert, bytes, bytes},
                       {after});
  }
  Copy copy{.direction = Direction::kDeviceToHost, .runs = pages * (layout == HostLayout::kHnd ? 1 : 2)};
  copy.run_bytes = bytes / copy.runs;
  copy.issuer = Lane::kBackupThread;
  ops.copy(Lane::kBackup, "back up pages", copy, {after});
}

}  // namespace

void back_up_prompt(const PrefillLayer& shape, int page, HostLayout layout, bool python, LayerOps& ops) {
  const Dims m(*shape.model);
  const auto tokens = static_cast<double>(shape.prompt_tokens);
  const double pages = shape.batch * static_cast<double>((shape.prompt_tokens + page - 1) / page);
  OpId after = ops.ready();
  if (python) {
    // The loop reads page numbers on the backup stream: it delays the following launches, but does not wait for the
    // device.
    const OpId loop = ops.host(Lane::kHost, Kind::kLaunch, "page loop", HostCall::kPythonPage, pages, {});
    after = ops.join(Lane::kBackup, {after, loop});
  }
  back_up(shape.batch * 2 * m.kv_heads * tokens * m.row(), pages, layout, ops, after);
}

void back_up_token(const DecodeLayer& shape, int page, HostLayout layout, LayerOps& ops) {
  const Dims m(*shape.model);
  back_up(shape.batch * 2 * m.kv_heads * m.row(), static_cast<double>(shape.batch) / page, layout, ops, ops.ready());
}

OpId fetch_ids(double ids, const IdPath& path, LayerOps& ops, OpId after) {
  Copy copy;
  copy.direction = Direction::kDeviceToHost;
  copy.runs = 1;
  copy.run_bytes = ids * kIndexBytes;
  copy.issuer = path.thread;
  const OpId copied = ops.copy(path.stream, "chosen pages", copy, {after});
  return ops.host(path.thread, Kind::kSync, "wait for page numbers", HostCall::kStreamSync, 1, {copied});
}

OpId gather_pairs(double pairs, double region_bytes, const Dims& m, LayerOps& ops, OpId after) {
  const CpuWork gather{.items = pairs,
                       .bytes_per_item = 2 * 2 * m.row(),  // key and value, read and written
                       .unit_bytes = m.row(),
                       .places_per_item = 2,
                       .region_bytes = region_bytes};
  const Copy copy{.runs = 1, .run_bytes = pairs * 2 * m.row(), .issuer = Lane::kRecallThread};
  return ops.copy(Lane::kCopyA, "fetch pairs", copy, {ops.cpu("gather pairs", gather, {after})});
}

namespace {

// The copies of `pages` pages of one KV head.
Copy recall_copy(const RecallPath& path, double pages, double row) {
  Copy copy{.runs = pages, .run_bytes = 2 * path.page * row, .issuer = Lane::kRecallThread};
  if (path.layout == HostLayout::kNhd) {
    const double pieces = path.copies == RecallCopies::kStrided ? 2 : 2 * path.page;
    copy.kind = CopyKind::kMemcpy2D;
    copy.rows = path.copies == RecallCopies::kStrided ? path.page : 1;
    copy.runs *= pieces;
    copy.run_bytes /= pieces;
  }
  if (path.copies == RecallCopies::kBatched) copy.kind = CopyKind::kBatched;
  return copy;
}

// Recalls `pages` pages of one KV head, of all sequences or of one.
OpId recall_head(const DecodeLayer& shape, const RecallPath& path, Lane lane, double pages, OpId after, LayerOps& ops) {
  const double row = Dims(*shape.model).row();
  Copy copy = recall_copy(path, pages, row);
  copy.in_turn = path.layout == HostLayout::kHnd && path.double_buffering;  // two buffers, each with its stream
  const OpId copied = ops.copy(lane, "recall pages", copy, {after});
  if (path.layout == HostLayout::kNhd) return copied;
  const double bytes = copy.runs * copy.run_bytes;
  Kernel convert{KernelClass::kConvert, bytes, bytes};
  convert.unit_bytes = row;
  const OpId converted = ops.kernel(lane, Kind::kConvert, "convert layout", convert, {copied});
  if (path.double_buffering) return converted;
  return ops.host(Lane::kRecallThread, Kind::kSync, "wait for buffer", HostCall::kStreamSync, 1, {converted});
}

}  // namespace

Recalled recall_pages(const DecodeLayer& shape, const RecallPath& path, const HeadTest& which, OpId after,
                      LayerOps& ops) {
  const auto heads = static_cast<std::size_t>(shape.heads_per_sequence());
  const bool staged = path.layout == HostLayout::kHnd;
  const bool two = staged && path.double_buffering;
  const bool by_sequence = staged && !path.double_buffering;
  Recalled last;
  bool second = false;
  const auto recall = [&](double pages) {
    const Lane lane = second ? Lane::kCopyB : Lane::kCopyA;
    (second ? last.b : last.a) = recall_head(shape, path, lane, pages, after, ops);
    if (!two) after = last.a;  // the single buffer is free again
    if (two) second = !second;
  };
  for (std::size_t h = 0; h < heads; ++h) {
    double pages = 0;
    for (std::size_t i = h; i < shape.heads.size(); i += heads) {
      if (!which(shape.heads[i]) || shape.heads[i].fetched_runs == 0) continue;
      // A single buffer holds the pages of one head of one sequence, and is waited for before the next.
      if (by_sequence) recall(static_cast<double>(shape.heads[i].fetched_runs));
      pages += static_cast<double>(shape.heads[i].fetched_runs);
    }
    if (!by_sequence && pages > 0) recall(pages);
  }
  return last;
}

OpId recall_by_kernel(const DecodeLayer& shape, const RecallPath& path, const HeadTest& which, Lane lane, OpId after,
                      LayerOps& ops) {
  double pages = 0;
  for (const HeadCounts& head : shape.heads) pages += which(head) ? static_cast<double>(head.fetched_runs) : 0;
  if (pages <= 0) return after;
  Copy copy = recall_copy(path, pages, Dims(*shape.model).row());
  copy.kind = CopyKind::kZeroCopy;
  return ops.copy(lane, "recall pages", copy, {after});
}

MemoryItem host_copy(const MemoryShape& shape) {
  return {graph::Pool::kDram, graph::Owner::kHostCache, kv_bytes(shape, static_cast<double>(shape.tokens))};
}

Parameter runtime_parameter() {
  return choice("runtime", {"compiled", "python"}, "the host's page loops: compiled code, or Python, as released");
}

Parameter recall_parameter() {
  return choice("recall", {"calls", "strided", "batched", "zero_copy"},
                "copy calls: one for each contiguous piece, as released (calls), one for pieces at equal distances, "
                "such as the keys of a page in nhd (strided), one for all pieces of a head (batched), or none: a "
                "kernel behind the top-k reads the pages of all heads over the link (zero_copy)");
}

RecallCopies parse_recall(const std::string& name) {
  return name == "strided"     ? RecallCopies::kStrided
         : name == "batched"   ? RecallCopies::kBatched
         : name == "zero_copy" ? RecallCopies::kZeroCopy
                               : RecallCopies::kCalls;
}

}  // namespace kvcast::policy
