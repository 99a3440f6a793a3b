/// Where memory lies, and which devices there are.
#pragma once

#include <cstdint>
#include <ostream>
#include <string_view>

namespace grapnel {

/// The kinds of devices.
enum class DeviceType : uint8_t { CPU, CUDA };
inline constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;

/// Where memory lies.
struct Device {
  DeviceType type = DeviceType::CPU;
  int8_t index = 0;
  Device() = default;
  constexpr Device(DeviceType t, int8_t i = 0) : type(t), index(t == DeviceType::CPU ? 0 : i) {}
  /// "cpu", "cuda" or "cuda:1".
  explicit Device(std::string_view text);
  constexpr bool is_cpu() const { return type == DeviceType::CPU; }
  constexpr bool is_cuda() const { return type == DeviceType::CUDA; }
  friend bool operator==(Device, Device) = default;
};
std::ostream& operator<<(std::ostream& out, DeviceType t);
std::ostream& operator<<(std::ostream& out, Device d);

/// CUDA devices are numbered from 0 to here at most.
inline constexpr int kMostDevices = 64;

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
