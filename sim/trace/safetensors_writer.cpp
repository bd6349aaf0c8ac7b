// Writes the header first (padded with spaces so that the data begins at a multiple of 8 bytes), then the data as it
// comes.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/failure.hpp"
#include "trace/safetensors.hpp"

namespace kvcast::trace {
namespace {

constexpr std::size_t kPiece = 1u << 16;  // elements converted at once

std::uint64_t element_count(const TensorShape& t) {
  std::uint64_t n = 1;
  for (const std::uint64_t extent : t.shape) KVCAST_CHECK(!__builtin_mul_overflow(n, extent, &n));
  return n;
}

std::string header_text(const std::map<std::string, std::string>& metadata, const std::vector<TensorShape>& tensors) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const TensorShape& t : tensors) {
    KVCAST_CHECK(!header.contains(t.name));
    const std::uint64_t end = offset + element_count(t) * dtype_bytes(t.dtype);
    header[t.name] = {{"dtype", dtype_name(t.dtype)}, {"shape", t.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.is_null() ? "{}" : header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::map<std::string, std::string>& metadata,
                                     std::vector<TensorShape> tensors)
    : path_(path), temporary_(fmt::format("{}.{}.tmp", path, ::getpid())), tensors_(std::move(tensors)) {
  std::error_code unknown;
  if (std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown)) {
    throw UserError({path_}, "cannot be replaced by a trace: not a file");
  }
  out_.open(temporary_.path(), std::ios::binary | std::ios::trunc);
  if (!out_) throw UserError({path_}, cannot_be_written(errno));
  const std::string header = header_text(metadata, tensors_);
  const std::uint64_t length = header.size();
  char bytes[sizeof length];
  std::memcpy(bytes, &length, sizeof length);
  out_.write(bytes, sizeof bytes).write(header.data(), static_cast<std::streamsize>(header.size()));
  if (!tensors_.empty()) left_ = element_count(tensors_[0]);
  skip_complete();
}

void SafetensorsWriter::skip_complete() {
  while (current_ < tensors_.size() && left_ == 0) {
    ++current_;
    if (current_ < tensors_.size()) left_ = element_count(tensors_[current_]);
  }
}

void SafetensorsWriter::append(const std::byte* data, std::size_t bytes, std::uint64_t elements) {
  out_.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  if (!out_) throw OutputError(path_ + ": " + cannot_be_written(errno));
  left_ -= elements;
}

void SafetensorsWriter::write(std::span<const float> values) {
  if (values.empty()) return;
  KVCAST_CHECK(current_ < tensors_.size() && values.size() <= left_ && is_floating(tensors_[current_].dtype));
  const TensorShape& t = tensors_[current_];
  for (std::size_t first = 0; first < values.size(); first += kPiece) {
    const auto piece = values.subspan(first, std::min(kPiece, values.size() - first));
    buffer_.resize(piece.size() * dtype_bytes(t.dtype));
    if (!from_floats(t.dtype, piece, buffer_.data())) {
      throw UserError({path_}, fmt::format("tensor \"{}\": a value is not finite as {}", t.name, dtype_name(t.dtype)));
    }
    append(buffer_.data(), buffer_.size(), piece.size());
  }
  skip_complete();
}

void SafetensorsWriter::write(std::span<const std::int64_t> values) {
  if (values.empty()) return;
  KVCAST_CHECK(current_ < tensors_.size() && values.size() <= left_);
  const Dtype dtype = tensors_[current_].dtype;
  KVCAST_CHECK(dtype == Dtype::kI32 || dtype == Dtype::kI64);
  buffer_.resize(values.size() * dtype_bytes(dtype));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto narrow = static_cast<std::int32_t>(values[i]);
    KVCAST_CHECK(dtype == Dtype::kI64 || narrow == values[i]);
    const void* const source = dtype == Dtype::kI32 ? static_cast<const void*>(&narrow) : &values[i];
    std::memcpy(buffer_.data() + i * dtype_bytes(dtype), source, dtype_bytes(dtype));
  }
  append(buffer_.data(), buffer_.size(), values.size());
  skip_complete();
}

void SafetensorsWriter::finish() {
  KVCAST_CHECK(current_ == tensors_.size());
  out_.close();
  if (!out_) throw OutputError(path_ + ": " + cannot_be_written(errno));
  std::error_code error;
  std::filesystem::rename(temporary_.path(), path_, error);
  if (error) throw UserError({path_}, fmt::format("cannot be put in place: {}", error.message()));
}

}  // namespace kvcast::trace
