#include "harness/verify/selection.h"

#include <fnmatch.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "harness/base/errors.h"
#include "harness/report/report.h"
#include "harness/report/result_json.h"
#include "scenarios/syntax/schema_text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string name_of(const PlannedCase& one) {
  return one.decided ? one.decided->name : one.scenario.name;
}
std::string numerics_of(const PlannedCase& one) {
  return one.decided ? one.decided->numerics : to_text(one.scenario.numerics.front());
}

// How a case is found again, from whichever folder it was run then.
using Identity = std::tuple<std::string, std::string, std::string>;

class EarlierRun {
 public:
  explicit EarlierRun(const std::string& path) try {
    std::ifstream file(path);
    if (!file) throw RequestError("--last-failed " + path + ": cannot be read");
    std::ostringstream text;
    text << file.rdbuf();
    const boost::json::value run = boost::json::parse(text.str());
    for (const boost::json::value& value : run.at("results").as_array()) {
      boost::json::object object = value.as_object();
      object["device"] = to_json(DeviceInfo{});  // A report has that of all once.
      const CaseResult one = result_from_json(object);
      (fails(one) ? failed_ : held_).insert(identity(one.file, one.name, one.numerics));
    }
  } catch (const std::exception& error) {
    if (dynamic_cast<const RequestError*>(&error) != nullptr) throw;
    throw RequestError("--last-failed " + path + " is no JSON report of verify: " + error.what());
  }
  bool held(const PlannedCase& one) const {
    const Identity id = identity(one.file, name_of(one), numerics_of(one));
    return held_.contains(id) && !failed_.contains(id);
  }

 private:
  static Identity identity(const std::string& file, const std::string& name,
                           const std::string& numerics) {
    return {fs::path(file).filename().string(), name, numerics};
  }
  std::set<Identity> held_, failed_;
};

}  // namespace

bool matches(const PlannedCase& one, const std::string& pattern) {
  const fs::path file(one.file);
  const std::string whole = "*" + pattern + "*";
  for (const std::string& text : {name_of(one) + " " + numerics_of(one),
                                  (file.parent_path().filename() / file.filename()).string()}) {
    if (::fnmatch(whole.c_str(), text.c_str(), 0) == 0) return true;
  }
  return false;
}

void select(std::vector<PlannedCase>& cases, const Selection& selection) {
  if (!selection.pattern.empty())
    std::erase_if(cases, [&](const PlannedCase& one) { return !matches(one, selection.pattern); });
  if (cases.empty())
    throw RequestError("-k " + shown(selection.pattern) +
                       ": no case has this in its name, precision or file");
  if (!selection.last_failed.empty()) {
    const EarlierRun earlier(selection.last_failed);
    std::erase_if(cases, [&](const PlannedCase& one) { return earlier.held(one); });
  }
  const std::size_t all = cases.size();
  std::int64_t place = 0;
  std::erase_if(cases, [&](const PlannedCase&) { return !selection.share.has(place++); });
  if (cases.empty() && selection.last_failed.empty()) {
    throw RequestError("--shard " + std::to_string(selection.share.number) + "/" +
                       std::to_string(selection.share.of) + " of " + std::to_string(all) +
                       " cases is empty");
  }
}

}  // namespace lockstep
