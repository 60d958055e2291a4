// `--backend cuda` as a user meets it: where a stand-in for NVIDIA's library is found before the
// machine's own (tests/backend/cuda/fake_libcuda.h), and where there is none.
#include <gtest/gtest.h>

#include <string>

#include "cli/program.h"

namespace kakeya::test {
namespace {

const std::string kAskCard = "run " + kDemoFlag + "--draft none -n 2 --ctx 64 -p Count --json ";

class CudaCommand : public Cli {
 protected:
  // With a card that is as `settings` say.
  Outcome on_card(const std::string& arguments, const std::string& settings = "") {
    return kakeya(
        arguments, "",
        "LD_LIBRARY_PATH=" KAKEYA_FAKE_LIBCUDA_FOLDER " KAKEYA_FAKE_CUDA='" + settings + "' ");
  }
  void expect_no_card(const std::string& settings, const std::string& why) {
    const Outcome asked = on_card(kAskCard + "--backend cuda", settings);
    EXPECT_EQ(asked.exit_code, 2);
    EXPECT_EQ(asked.out, "");
    EXPECT_EQ(asked.err, "kakeya: backend cuda is not available: " + why + "\n");
  }
  // Expects the same words from a command that measures the memory, which takes a second.
  void expect_no_card_of_doctor(const std::string& settings, const std::string& why) {
    const auto doctor = nlohmann::json::parse(on_card("doctor --json", settings).out);
    EXPECT_EQ(doctor["backends"]["cuda"], why);
    EXPECT_FALSE(doctor["devices"].contains("cuda"));
  }
};

#if defined(KAKEYA_HAS_DEVICE_CODE)

TEST_F(CudaCommand, AnswersAsTheEmulatorDoes) {
  const Outcome card = on_card(kAskCard + "--backend cuda");
  ASSERT_EQ(card.exit_code, 0) << card.err;
  const auto expected = nlohmann::json::parse(kakeya(kAskCard + "--backend cuda-emulated").out);
  const auto got = nlohmann::json::parse(card.out);
  EXPECT_EQ(got["output_ids"].size(), 2U);
  EXPECT_EQ(got["output_ids"], expected["output_ids"]);
  EXPECT_EQ(got["memory"], expected["memory"]);
}

TEST_F(CudaCommand, SaysWhyThereIsNoCard) {
  const std::string none =
      "the NVIDIA driver does not start: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)";
  expect_no_card("devices=0", none);
  expect_no_card_of_doctor("devices=0", none);
  expect_no_card("driver=11040", "the NVIDIA driver is too old: it knows CUDA 11.4, expected " +
                                     std::string(KAKEYA_CUDA_DRIVER) + ".0 or later");
  expect_no_card("capability=75",
                 "card 0, Stand-in, has compute capability 7.5, expected 8.0 or later");
  const Outcome other = on_card(kAskCard + "--backend cuda/3");
  EXPECT_EQ(other.err,
            "kakeya: backend cuda is not available: expected a card with number 3, but the NVIDIA "
            "driver shows 1, counted from 0\n");
}

TEST_F(CudaCommand, RefusesWhatDoesNotFitOnTheCard) {
  const Outcome full = on_card(kAskCard + "--backend cuda", "memory=4194304");
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_TRUE(
      full.err.starts_with("kakeya: memory of cuda:0, of which 4.0 MiB is free, is too "
                           "small: this model and one session of 64 tokens need weights "))
      << full.err;
}

TEST_F(CudaCommand, EndsWithTheLineOfAKernelThatFails) {
  const Outcome failed = on_card(kAskCard + "--backend cuda", "fault_launch=20");
  EXPECT_EQ(failed.exit_code, 2);
  EXPECT_EQ(std::count(failed.err.begin(), failed.err.end(), '\n'), 1) << failed.err;
  EXPECT_NE(failed.err.find("CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was "
                            "encountered)"),
            std::string::npos)
      << failed.err;
}

TEST_F(CudaCommand, DoctorDescribesTheCard) {
  const auto doctor =
      nlohmann::json::parse(on_card("doctor --json", "capability=86 memory=1073741824").out);
  EXPECT_EQ(doctor["backends"]["cuda"], "available");
  EXPECT_EQ(doctor["devices"]["cuda"]["name"], "Stand-in");
  EXPECT_EQ(doctor["devices"]["cuda"]["capability"], "8.6");
  EXPECT_EQ(doctor["devices"]["cuda"]["memory_bytes"], 1073741824);
  EXPECT_EQ(doctor["devices"]["cuda"]["free_bytes"], 1073741824);
  const Outcome text = on_card("doctor", "memory=1073741824");
  EXPECT_NE(text.out.find("cuda              Stand-in, compute capability 9.0, 1.0 GiB in all, 1.0 "
                          "GiB free\n"),
            std::string::npos)
      << text.out;
}

#else

TEST_F(CudaCommand, SaysThatTheBuildHasNoDeviceCode) {
  const std::string why = "this build was made without nvcc and has no code for cards";
  expect_no_card("", why);
  expect_no_card_of_doctor("", why);
}

#endif

}  // namespace
}  // namespace kakeya::test
