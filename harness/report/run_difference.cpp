#include "harness/report/run_difference.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>
#include <vector>

#include "harness/base/errors.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

namespace json = boost::json;

std::string text_of(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || !value->is_string()) return "";
  return json::value_to<std::string>(*value);
}

// File's name, name, precision, and the place among the cases that share all three.
using Identity = std::tuple<std::string, std::string, std::string, int>;
using Cases = std::vector<std::pair<Identity, const json::object*>>;

Cases cases_of(const json::object& run) {
  std::map<Identity, int> seen;
  Cases list;
  for (const json::value& value : run.at("results").as_array()) {
    const json::object& one = value.as_object();
    Identity id{std::filesystem::path(text_of(one, "file")).filename().string(),
                text_of(one, "name"), text_of(one, "numerics"), 0};
    std::get<3>(id) = seen[id]++;
    list.emplace_back(id, &one);
  }
  return list;
}

bool is_failure(const std::string& verdict) { return verdict != "holds" && verdict != "skipped"; }

// The reason without the numbers of allocations, which change with any that was made before.
std::string lasting(const std::string& reason) {
  std::string out;
  for (std::size_t i = 0; i < reason.size(); ++i) {
    out += reason[i];
    if (!out.ends_with("allocation ")) continue;
    while (i + 1 < reason.size() && reason[i + 1] >= '0' && reason[i + 1] <= '9') ++i;
  }
  return out;
}

double seconds_of(const json::object& one) {
  const json::value* value = one.if_contains("seconds");
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

json::object named(const json::object& one) {
  json::object row{{"name", text_of(one, "name")}, {"numerics", text_of(one, "numerics")}};
  if (!text_of(one, "file").empty()) row["file"] = text_of(one, "file");
  return row;
}

json::object changed(const json::object& was, const json::object& is) {
  json::object row = named(is);
  row["was"] = text_of(was, "verdict");
  row["is"] = text_of(is, "verdict");
  const json::object& told = is_failure(text_of(is, "verdict")) ? is : was;
  row["judge"] = text_of(told, "judge");
  row["reason"] = text_of(told, "reason");
  if (is_failure(text_of(was, "verdict"))) row["was_reason"] = text_of(was, "reason");
  return row;
}

class Difference {
 public:
  void compare(const json::object& was, const json::object& is) {
    const bool failed = is_failure(text_of(was, "verdict")),
               fails = is_failure(text_of(is, "verdict"));
    if (!failed && fails) newly_failing_.push_back(changed(was, is));
    if (failed && !fails) mended_.push_back(changed(was, is));
    if (failed && fails && differ(was, is)) other_failure_.push_back(changed(was, is));
    if (!failed && !fails) compare_counters(was, is);
    const double before = seconds_of(was), now = seconds_of(is);
    if (now > 1.5 * before && now > before + 0.5) {
      json::object row = named(is);
      row["was_seconds"] = before;
      row["seconds"] = now;
      slower_.push_back(std::move(row));
    }
  }
  void add(const json::object& one) { added_.push_back(named(one)); }
  void lose(const json::object& one) { gone_.push_back(named(one)); }
  json::object take() {
    return {{"newly_failing", std::move(newly_failing_)},
            {"mended", std::move(mended_)},
            {"other_failure", std::move(other_failure_)},
            {"added", std::move(added_)},
            {"gone", std::move(gone_)},
            {"counters", std::move(counters_)},
            {"slower", std::move(slower_)}};
  }

 private:
  static bool differ(const json::object& was, const json::object& is) {
    return text_of(was, "verdict") != text_of(is, "verdict") ||
           text_of(was, "judge") != text_of(is, "judge") ||
           lasting(text_of(was, "reason")) != lasting(text_of(is, "reason"));
  }
  void compare_counters(const json::object& was, const json::object& is) {
    const json::value *a = was.if_contains("counters"), *b = is.if_contains("counters");
    if (!a || !b || !a->is_object() || !b->is_object()) return;
    for (const auto& [name, value] : b->get_object()) {
      const json::value* before = a->get_object().if_contains(name);
      if (before != nullptr && *before == value) continue;
      json::object row = named(is);
      row["counter"] = name;
      row["was"] = before ? *before : json::value(nullptr);
      row["is"] = value;
      counters_.push_back(std::move(row));
    }
  }
  json::array newly_failing_, mended_, other_failure_, added_, gone_, counters_, slower_;
};

std::size_t count(const json::object& difference, const char* list) {
  return difference.at(list).as_array().size();
}

}  // namespace

json::object run_difference(const json::object& old_run, const json::object& new_run,
                            const std::string& file) {
  const Cases before = cases_of(old_run), now = cases_of(new_run);
  std::map<Identity, const json::object*> old_cases(before.begin(), before.end());
  Difference difference;
  for (const auto& [id, one] : now) {
    const auto was = old_cases.find(id);
    if (was == old_cases.end()) {
      difference.add(*one);
      continue;
    }
    difference.compare(*was->second, *one);
    old_cases.erase(was);
  }
  for (const auto& [id, one] : before) {
    if (old_cases.contains(id)) difference.lose(*one);
  }
  json::object out = difference.take();
  out["file"] = as_utf8(file);
  out["revision"] = text_of(old_run, "revision");
  out["date"] = text_of(old_run, "date");
  return out;
}

std::string difference_text(const json::object& difference) {
  std::ostringstream out;
  const auto lines = [&](const char* list, const char* word) {
    for (const json::value& value : difference.at(list).as_array()) {
      const json::object& one = value.as_object();
      out << "  " << word << text_of(one, "name") << " (" << text_of(one, "numerics") << "), "
          << text_of(one, "was") << " before, by " << text_of(one, "judge") << "\n";
    }
  };
  out << "against " << text_of(difference, "file") << ": " << count(difference, "newly_failing")
      << " newly fail, " << count(difference, "mended") << " mended, "
      << count(difference, "other_failure") << " fail otherwise, " << count(difference, "added")
      << " added, " << count(difference, "gone") << " gone, " << count(difference, "slower")
      << " slower\n";
  lines("newly_failing", "newly fails: ");
  lines("mended", "mended: ");
  return shown_lines(out.str());
}

json::object read_report(const std::string& file, const char* option) try {
  std::ifstream stream(file);
  if (!stream) throw RequestError(std::string(option) + " " + file + ": cannot be read");
  std::ostringstream text;
  text << stream.rdbuf();
  json::object run = json::parse(text.str()).as_object();
  for (const json::value& one : run.at("results").as_array()) static_cast<void>(one.as_object());
  return run;
} catch (const RequestError&) {
  throw;
} catch (const std::exception& error) {
  throw RequestError(std::string(option) + " " + file +
                     " is no JSON report of a run: " + error.what());
}

}  // namespace lockstep
