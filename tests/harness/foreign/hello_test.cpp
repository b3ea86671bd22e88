// What an engine says of itself.
#include "harness/foreign/hello.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace lockstep {
namespace {

namespace json = boost::json;

json::object said(const json::value& amplifies) {
  return {{"engine", {{"name", "toy"}, {"version", "1"}}},
          {"honours", {{"numerics", {"fp32"}}, {"model.pattern", {{"symbols", "-"}}}}},
          {"observes", {"gradient"}},
          {"amplifies", amplifies}};
}

TEST(Hello, HoldsBackAllStreamsOrThoseThatItNames) {
  json::object reply = said({"delay"});
  EXPECT_EQ(foreign::hello_from_json(reply).delays.size(), 7u);
  reply["delays"] = {"d2h", "h2d"};
  EXPECT_EQ(foreign::hello_from_json(reply).delays, (std::set<std::string>{"d2h", "h2d"}));
  reply["delays"] = {"d2d"};
  EXPECT_THROW(foreign::hello_from_json(reply), std::invalid_argument);
  EXPECT_TRUE(foreign::hello_from_json(said({"poison"})).delays.empty());
}

}  // namespace
}  // namespace lockstep
