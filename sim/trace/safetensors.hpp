// Reader and writer of safetensors files (https://github.com/huggingface/safetensors): 8 bytes of little-endian header
// length, a JSON header, raw little-endian tensor data without holes.
//
// The reader maps the file and never copies it whole. Every rule of the format is checked before any data is used; data
// may have any alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/temporary.hpp"
#include "trace/dtype.hpp"

namespace kvcast::trace {

struct Tensor {
  Dtype dtype = Dtype::kOther;
  std::string dtype_name;  // as written
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> data;

  std::uint64_t elements() const;  // does not overflow: checked when the header was read
};

class SafetensorsFile {
 public:
  // Maps a file. Throws UserError naming the file and the header key that is wrong.
  static SafetensorsFile open(const std::string& path);
  // The same from memory; `name` is the file's name in messages.
  static SafetensorsFile from_bytes(std::string bytes, const std::string& name);

  const std::string& name() const { return name_; }
  std::string_view bytes() const { return bytes_; }  // the whole file
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const Tensor* find(const std::string& tensor) const;  // null if there is none

 private:
  SafetensorsFile() = default;
  void read_header();

  std::shared_ptr<const void> owner_;  // the mapping, or the bytes
  std::string name_;
  std::string_view bytes_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Tensor> tensors_;
};

struct TensorShape {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::uint64_t> shape;
};

// Writes tensors one after the other, in pieces of any size, into a temporary file next to the target that is renamed
// into place at the end: a reader sees the old file or the whole new one. Throws UserError if the target is not a
// regular file, such as a device.
class SafetensorsWriter {
 public:
  // Throws UserError if the file cannot be created.
  SafetensorsWriter(const std::string& path, const std::map<std::string, std::string>& metadata,
                    std::vector<TensorShape> tensors);
  // Writes the next elements, in the order of the tensors; a piece must not cross a tensor's end. Floats go to
  // floating-point tensors (UserError names the tensor if a value does not fit its type), integers to I32 and I64.
  void write(std::span<const float> values);
  void write(std::span<const std::int64_t> values);
  // All tensors must be complete. Renames the file into place.
  void finish();

 private:
  void append(const std::byte* data, std::size_t bytes, std::uint64_t elements);
  void skip_complete();

  std::string path_;
  Temporary temporary_;
  std::ofstream out_;
  std::vector<TensorShape> tensors_;
  std::size_t current_ = 0;  // tensor being written
  std::uint64_t left_ = 0;   // its remaining elements
  std::vector<std::byte> buffer_;
};

}  // namespace kvcast::trace
