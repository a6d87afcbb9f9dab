#include "leashed/cluster/mode_messages.h"

#include <bit>
#include <string>

namespace leashed {
namespace {

class TermsDigest {
 public:
  // FNV-1a, of words: of whose highest bits, which are all that many numbers have, a product has
  // nothing further down.
  void add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001B3;
    value_ ^= value_ >> 32;
  }
  void add(const std::string& text) {
    add(std::uint64_t{text.size()});
    for (const char letter : text) add(std::uint64_t{static_cast<unsigned char>(letter)});
  }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  void add(const Choice& choice) {
    add(choice.name);
    add(std::uint64_t{choice.settings.size()});
    for (const auto& [key, number] : choice.settings) {
      add(key);
      add(number);
    }
    add(std::uint64_t{choice.tables.size()});
    for (const auto& [key, table] : choice.tables) {
      add(key);
      add(std::uint64_t{table.size()});
      for (const double number : table) add(number);
    }
    add(std::uint64_t{choice.parts.size()});
    for (const auto& [key, part] : choice.parts) {
      add(key);
      add(part);
    }
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325;
};

}  // namespace

std::uint64_t mode_terms(std::uint64_t model, std::size_t dimension, const Choice& mode,
                         const Choice& rule, const Choice& staleness) {
  TermsDigest digest;
  digest.add(model);
  digest.add(std::uint64_t{dimension});
  for (const Choice* const choice : {&mode, &rule, &staleness}) digest.add(*choice);
  return digest.value();
}

}  // namespace leashed
