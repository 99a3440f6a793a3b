/// Where memory lies, and which devices there are.
#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

namespace grapnel {

/// The kinds of devices.
enum class DeviceType : uint8_t { CPU, CUDA };
inline constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;

/// CUDA devices are numbered from 0 to below this.
inline constexpr int kMostDevices = 64;

/// Where memory lies. There is no "current" device: one without a number is the first.
struct Device {
  DeviceType type = DeviceType::CPU;
  int8_t index = 0;
  Device() = default;
  /// Fails if there can be no device of that number.
  constexpr Device(DeviceType t, int i = 0) : type(t), index(static_cast<int8_t>(i)) {
    if (i < 0 || i >= (t == DeviceType::CPU ? 1 : kMostDevices)) [[unlikely]]
      refuse_index(t, i);
  }
  /// "cpu", "cuda" or "cuda:1".
  explicit Device(std::string_view text);
  constexpr bool is_cpu() const { return type == DeviceType::CPU; }
  constexpr bool is_cuda() const { return type == DeviceType::CUDA; }
  friend bool operator==(Device, Device) = default;

 private:
  [[noreturn, gnu::cold]] static void refuse_index(DeviceType type, int index);
};
/// A queue of a device; 0 is the one that every device has.
using QueueId = uint32_t;

std::ostream& operator<<(std::ostream& out, DeviceType t);
std::ostream& operator<<(std::ostream& out, Device d);

/// Where factories make tensors unless told otherwise; the CPU unless changed.
Device get_default_device();
/// Another one from now on, for all threads.
void set_default_device(Device device);

namespace cuda {
/// Whether this program has a CUDA device.
bool is_available();
/// How many there are, numbered from 0.
int device_count();
}  // namespace cuda

}  // namespace grapnel
