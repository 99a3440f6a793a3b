/// Devices as values, and programs that have none but the CPU.
#include <doctest/doctest.h>

#include "grapnel/grapnel.h"

using namespace grapnel;

TEST_CASE("a device is a kind and a number, written as in PyTorch") {
  CHECK(str(Device()) == "cpu");
  CHECK(str(Device(kCUDA)) == "cuda:0");
  CHECK(str(Device(kCUDA, 3)) == "cuda:3");
  CHECK(Device("cpu") == Device(kCPU));
  CHECK(Device("cuda") == Device(kCUDA, 0));
  CHECK(Device("cuda:1") == Device(kCUDA, 1));
  CHECK(Device("cuda:1") != Device(kCUDA));
  CHECK(Device(kCUDA).is_cuda());
  CHECK_FALSE(Device(kCUDA).is_cpu());
  for (const char* text :
       {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:64", "cuda:1 ", "cpu:1"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(Device{std::string_view(text)},
                      str("Device: there is no device \"", text,
                          "\".\nDevices are \"cpu\", \"cuda\" and \"cuda:1\".")
                          .c_str());
  }
  for (const int index : {-1, 64, 200, 256}) {
    CAPTURE(index);
    CHECK_THROWS_WITH(Device(kCUDA, index),
                      str("Device: there is no device \"cuda:", index,
                          "\".\nDevices are \"cpu\", \"cuda\" and \"cuda:1\".")
                          .c_str());
  }
  CHECK_THROWS_WITH(Device(kCPU, 1), "Device: there is no device \"cpu:1\".\n"
                                     "Devices are \"cpu\", \"cuda\" and \"cuda:1\".");
}

TEST_CASE("without a device, whatever asks for one says that there is none") {
  CHECK_FALSE(cuda::is_available());
  CHECK(cuda::device_count() == 0);
  const char* const none =
      "cuda:0: this program has no CUDA device: Grapnel was built without a CUDA module.\n"
      "cuda::is_available() tells beforehand.";
  const Tensor x = ones({2});
  CHECK_THROWS_WITH(x.cuda(), none);
  CHECK_THROWS_WITH(x.to(kCUDA), none);
  CHECK_THROWS_WITH(x.to(TensorOptions(kCUDA)), none);
  CHECK_THROWS_WITH(zeros({2}, kCUDA), none);
  CHECK_THROWS_WITH(empty({2}, device(kCUDA)), none);
  CHECK_THROWS_WITH(tensor({1.0}, device(kCUDA)), none);
  CHECK_THROWS_WITH(rand({2}, kCUDA), none);
  CHECK_THROWS_WITH(set_default_device(kCUDA), none);
}

TEST_CASE("what is where it should be is not copied") {
  const Tensor x = ones({2});
  CHECK(x.cpu().is_same(x));
  CHECK(x.to(kCPU).is_same(x));
  CHECK(x.to(Device("cpu")).is_same(x));
  CHECK(x.is_cpu());
  CHECK_FALSE(x.is_cuda());
}
