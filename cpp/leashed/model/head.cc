#include "leashed/model/head.h"

#include <map>
#include <string>

#include "leashed/base/choice.h"

namespace leashed {

Head parse_head(std::string_view name) {
  static const std::map<std::string, Head> heads = {{"hinge", Head::hinge},
                                                    {"log_loss", Head::log_loss},
                                                    {"softmax", Head::softmax},
                                                    {"squared_error", Head::squared_error}};
  return find_choice(heads, "loss", std::string(name));
}

}  // namespace leashed
