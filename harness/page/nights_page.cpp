#include "harness/page/nights_page.h"

#include <algorithm>

#include "harness/page/html_text.h"
#include "harness/page/page.h"
#include "harness/page/rows_table.h"

namespace lockstep {

std::string nights_page(const boost::json::object& nights) {
  const boost::json::value whole = nights;
  const boost::json::array &rows = rows_at(whole, "/nights"), &classes = rows_at(whole, "/classes");
  const bool failed = std::ranges::any_of(rows, [](const boost::json::value& row) {
    return row.at("failures").to_number<std::int64_t>() > 0 || row.as_object().contains("error");
  });
  Page page{.title = "lockstep: nights",
            .kind = "campaigns of several nights",
            .failed = failed,
            .facts = facts_of(nights)};
  page.body = "<section>\n<h2>Classes of failures</h2>\n";
  page.body +=
      classes.empty()
          ? element("p", "note", "No campaign found a failure.")
          : element("p", "note",
                    "What failed last comes first. Each figure is the cases of a night, the "
                    "earliest first, + for more than nine, - where none ran.") +
                rows_table(classes, {{"class", "class", 0},
                                     {"kind", "kind", 0},
                                     {"nights", "nights", 0},
                                     {"first", "first", 0},
                                     {"last", "last", 0},
                                     {"again", "the last one again", 0}});
  page.body += "</section>\n<section>\n<h2>Nights</h2>\n" +
               rows_table(rows, {{"date", "date", 0},
                                 {"seed", "seed", 0},
                                 {"shard", "shard", 0},
                                 {"revision", "revision", 0},
                                 {"device", "device", 0},
                                 {"cases", "cases", 0},
                                 {"failures", "failures", 0},
                                 {"new_classes", "new classes", 0},
                                 {"skipped", "skipped", 0},
                                 {"pairs_met", "pairs of features met", 0},
                                 {"seconds", "seconds", 0},
                                 {"file", "report", 0},
                                 {"error", "ended before its first case", 0}}) +
               "</section>\n";
  return html_page(page);
}

}  // namespace lockstep
