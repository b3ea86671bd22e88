// Loss and gradients in double against those of another implementation, committed as files beside
// this test. A file: {"scenario": yaml, "documents": [[token]], "targets": [[token or -1]],
// "weights": [[number]] in index order, "loss": number, "gradients": [[number]]}; the loss is the
// sum of the token losses over the number of targets. With experts also "expert_bias": [[number]]
// per symbol of the pattern and "expert_losses": [[aux, z]] per layer of experts, which the
// gradients include.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "oracle/oracle.h"
#include "scenarios/io/reader.h"
#include "tests/support/tree.h"

namespace lockstep::oracle {
namespace {

namespace json = boost::json;
namespace fs = std::filesystem;

fs::path folder() { return fs::path(root_path()) / "tests/oracle/fixtures"; }

std::vector<fs::path> files() {
  std::vector<fs::path> list;
  if (!fs::is_directory(folder())) return list;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder())) {
    if (entry.path().extension() == ".json") list.push_back(entry.path());
  }
  std::sort(list.begin(), list.end());
  return list;
}

struct Fixture {
  Scenario scenario;
  Microbatch microbatch;
  std::vector<std::vector<double>> weights, gradients, expert_bias, expert_losses;
  double loss = 0;
};

Fixture read(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  const json::object object = json::parse(text.str()).as_object();
  const auto numbers = [&](const char* key) {
    return json::value_to<std::vector<std::vector<double>>>(object.at(key));
  };
  Fixture fixture;
  const ReadResult scenario =
      read_scenario_text(json::value_to<std::string>(object.at("scenario")), file.string());
  for (const ScenarioError& error : scenario.errors) {
    if (error.rule != "L00")
      ADD_FAILURE() << error.text();  // The oracle may know a layer before the engine does.
  }
  fixture.scenario = scenario.scenario;
  const auto tokens =
      json::value_to<std::vector<std::vector<std::int32_t>>>(object.at("documents"));
  const auto targets = json::value_to<std::vector<std::vector<std::int32_t>>>(object.at("targets"));
  for (std::size_t d = 0; d < tokens.size(); ++d) {
    fixture.microbatch.documents.push_back(
        {static_cast<std::int32_t>(d), tokens[d], targets.at(d)});
  }
  fixture.weights = numbers("weights");
  fixture.gradients = numbers("gradients");
  if (object.contains("expert_losses")) {
    fixture.expert_bias = numbers("expert_bias");
    fixture.expert_losses = numbers("expert_losses");
  }
  fixture.loss = object.at("loss").to_number<double>();
  return fixture;
}

// Two double computations of the same function in different orders: some thousand roundings of
// 1e-16 each.
constexpr double kRelative = 1e-10;

void expect_agreement(const std::vector<double>& got, const std::vector<double>& want,
                      const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0, difference = 0;
  for (std::size_t e = 0; e < want.size(); ++e) {
    largest = std::max(largest, std::abs(want[e]));
    const double here = std::abs(got[e] - want[e]);
    if (!(here <= difference)) difference = here;
  }
  EXPECT_GT(largest, 0) << what;
  EXPECT_LE(difference, kRelative * largest) << what;
}

TEST(fixtures, agree_with_the_oracle_in_double) {
  const std::vector<fs::path> list = files();
  ASSERT_FALSE(list.empty()) << "no fixtures in " << folder();
  for (const fs::path& file : list) {
    const Fixture fixture = read(file);
    const DoubleResult result = run_in_double(fixture.scenario, fixture.microbatch, fixture.weights,
                                              0, fixture.expert_bias);
    const std::string name = file.filename().string();
    expect_agreement({result.loss}, {fixture.loss}, name + " loss");
    ASSERT_EQ(result.experts.size(), fixture.expert_losses.size()) << name;
    for (std::size_t k = 0; k < result.experts.size(); ++k) {
      expect_agreement({result.experts[k].aux_loss, result.experts[k].z_loss},
                       fixture.expert_losses[k], name + " losses of experts " + std::to_string(k));
    }
    ASSERT_EQ(result.gradients.size(), fixture.gradients.size()) << name;
    for (std::size_t p = 0; p < result.gradients.size(); ++p) {
      expect_agreement(result.gradients[p], fixture.gradients[p],
                       name + " parameter " + std::to_string(p));
    }
  }
}

}  // namespace
}  // namespace lockstep::oracle
