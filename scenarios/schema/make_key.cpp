#include "scenarios/schema/make_key.h"

#include "scenarios/schema/brackets.h"

namespace lockstep {

Key counts_if(Key key, bool (*is_read)(const Scenario&)) {
  key.counts = is_read;
  return key;
}

Key nested(Key key, int levels, const char* shape) {
  key.read = [read = key.read, path = key.path, levels, shape](const Item& item,
                                                               Scenario& scenario) {
    const int written = levels_of_brackets(item.node).value_or(levels);
    if (written >= levels) return read(item, scenario);
    std::string mended = numbers_as_written(item.node);
    for (int i = written; i < levels && !mended.empty(); ++i)
      mended = write_list({mended}, Style::yaml);
    item.faults.add("Y05", item.node.place, path,
                    (written == 0 ? "has no" : "has " + std::to_string(written)) +
                        (written == 1 ? " level of brackets" : " levels of brackets"),
                    std::string("it takes ") + shape, mended);
  };
  return key;
}

Key added(Key key) {
  key.is_left_out = [write = key.write](const Scenario& s) {
    return write(s, Style::json) == write(Scenario(), Style::json);
  };
  return key;
}

Key unless(Key key, bool (*is_default)(const Scenario&)) {
  key.is_left_out = is_default;
  return key;
}

}  // namespace lockstep
