/// Where memory lies, and which devices there are.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

namespace grapnel {

/// The kinds of devices.
enum class DeviceType : uint8_t { CPU, CUDA };
inline constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;

/// CUDA devices are numbered from 0 to below this.
inline constexpr int kMostDevices = 64;

/// Where memory lies. There is no "current" device: one without a number is the first.
class Device {
 public:
  Device() = default;
  /// Fails if there can be no device of that number.
  constexpr Device(DeviceType type, int index = 0)
      : type_(type), index_(static_cast<int8_t>(index)) {
    if (index < 0 || index >= (type == DeviceType::CPU ? 1 : kMostDevices)) [[unlikely]]
      refuse_index(type, index);
  }
  /// "cpu", "cuda" or "cuda:1".
  explicit Device(std::string_view text);
  constexpr DeviceType type() const { return type_; }
  /// Its number among the CUDA devices; 0 for the CPU.
  constexpr int8_t index() const { return index_; }
  constexpr bool has_index() const { return is_cuda(); }
  constexpr bool is_cpu() const { return type_ == DeviceType::CPU; }
  constexpr bool is_cuda() const { return type_ == DeviceType::CUDA; }
  /// As it is written: "cpu", "cuda:1".
  std::string str() const;
  friend bool operator==(Device, Device) = default;

 private:
  [[noreturn, gnu::cold]] static void refuse_index(DeviceType type, int index);
  DeviceType type_ = DeviceType::CPU;
  int8_t index_ = 0;
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
