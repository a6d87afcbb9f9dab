// Bytes one after another: a file's, or what comes out of a decompressor.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>

namespace leashed {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Up to `most` of those that follow; 0: there are none, or `stop` is set.
  virtual std::size_t read(char* to, std::size_t most, const std::atomic<bool>& stop) = 0;
};

// A regular file. Throws std::filesystem::filesystem_error.
class FileSource final : public ByteSource {
 public:
  explicit FileSource(const std::string& path);
  FileSource(const FileSource&) = delete;
  ~FileSource() override;
  std::size_t read(char* to, std::size_t most, const std::atomic<bool>& stop) override;

 private:
  const std::string path_;
  const int file_;
};

}  // namespace leashed
