#include "leashed/cluster/mode_messages.h"

#include "leashed/base/words_digest.h"

namespace leashed {
namespace {

void add(WordsDigest& digest, const Choice& choice) {
  digest.add(choice.name);
  digest.add(std::uint64_t{choice.settings.size()});
  for (const auto& [key, number] : choice.settings) {
    digest.add(key);
    digest.add(number);
  }
  digest.add(std::uint64_t{choice.tables.size()});
  for (const auto& [key, table] : choice.tables) {
    digest.add(key);
    digest.add(std::uint64_t{table.size()});
    for (const double number : table) digest.add(number);
  }
  digest.add(std::uint64_t{choice.parts.size()});
  for (const auto& [key, part] : choice.parts) {
    digest.add(key);
    add(digest, part);
  }
}

}  // namespace

std::uint64_t mode_terms(std::uint64_t model, std::size_t dimension, const Choice& mode,
                         const Choice& rule, const Choice& staleness) {
  WordsDigest digest;
  digest.add(model);
  digest.add(std::uint64_t{dimension});
  for (const Choice* const choice : {&mode, &rule, &staleness}) add(digest, *choice);
  return digest.value();
}

}  // namespace leashed
