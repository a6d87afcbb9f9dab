// Out of memory, wherever memory is allocated.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <new>
#include <string>

#include "leashed/trace/trace_writer.h"
#include "replaced_new.h"

namespace {

// Allocations until one fails; far away where none is to.
constexpr long kNever = 1L << 60;
std::atomic<long> allocations_left{kNever};

void allocating() {
  if (allocations_left.fetch_sub(1, std::memory_order_relaxed) == 0) throw std::bad_alloc();
}

}  // namespace

using namespace leashed;
namespace fs = std::filesystem;

TEST_CASE("a trace that there is no memory for leaves nothing of its file") {
  const fs::path folder = fs::temp_directory_path() / ("trace_memory." + std::to_string(getpid()));
  fs::remove_all(folder);
  fs::create_directory(folder);
  const std::string path = folder / "run.trace";
  int failed = 0;
  for (long left = 0; left < 60; ++left) {
    CAPTURE(left);
    bool written = false;
    allocations_left.store(left, std::memory_order_relaxed);
    try {
      const TraceWriter writer(path, "{}", {1}, 1, 0);
      written = true;
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    allocations_left.store(kNever, std::memory_order_relaxed);
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& file : fs::directory_iterator(folder)) ++files;
    CHECK(files == (written ? 1 : 0));
    fs::remove(path);
  }
  CHECK(failed > 0);
  fs::remove_all(folder);
}
