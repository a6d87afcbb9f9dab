// Memory that is reserved at once and comes, zero, as it is first written; in huge pages where it
// is large and the system gives them.
#pragma once

#include <cstddef>
#include <string>

namespace leashed {

class Reserved {
 public:
  // So many pieces of so many bytes. Throws Error, which names what it was for, where so much
  // cannot be reserved.
  Reserved(std::size_t count, std::size_t bytes, const std::string& what);
  ~Reserved();
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* mapped_;
  std::byte* data_;
};

}  // namespace leashed
