// The words in which ranks offer communicators, and which one they agree on.
#include "engine/comm/communicator_ids.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/rendezvous/collective_errors.h"

namespace lockstep {
namespace {

CommunicatorId id(int length, int byte) {
  return CommunicatorId(static_cast<std::size_t>(length), static_cast<std::byte>(byte));
}

TEST(CommunicatorIds, AreReadAsTheyWereOffered) {
  for (const OfferedIds& offered : {OfferedIds{}, OfferedIds{{id(1, 0), id(255, 43), id(128, 45)}},
                                    OfferedIds{{id(128, 0)}, true}}) {
    const OfferedIds read = read_offered_ids(words_of(offered));
    EXPECT_EQ(read.ids, offered.ids);
    EXPECT_EQ(read.is_new, offered.is_new);
  }
}

// The words come from another process.
TEST(CommunicatorIds, AreHeldToTheirForm) {
  const std::string zero(1, '\0');
  for (const std::string& words :
       {std::string(), std::string("x"), "-" + zero, std::string("-\2a"), std::string("-\1ab"),
        std::string("+"), std::string("+\1a\1b"), zero})
    EXPECT_THROW(read_offered_ids(words), BadFrame) << words;
}

TEST(CommunicatorIds, AreAgreedOnByAllRanks) {
  const CommunicatorId a = id(128, 1), b = id(128, 2), c = id(128, 3);
  using Offers = std::vector<OfferedIds>;
  EXPECT_EQ(agreed_id(Offers{{{a}, true}, {{b}}, {}}), a);
  EXPECT_EQ(agreed_id(Offers{{{a, b, c}}, {{c, b}}, {{b, c}}}), b);
  EXPECT_FALSE(agreed_id(Offers{{{a, b}}, {{a}}, {{b}}}));
  EXPECT_FALSE(agreed_id(Offers{{}, {{a}}}));
  EXPECT_EQ(agreed_id(Offers{{{c}}}), c);
}

}  // namespace
}  // namespace lockstep
