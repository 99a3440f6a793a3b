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

/// Where memory lies.
class Device {
 public:
  Device() = default;
  constexpr Device(DeviceType type, int8_t index = 0)
      : type_(type), index_(type == DeviceType::CPU ? int8_t{0} : index) {}
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
  DeviceType type_ = DeviceType::CPU;
  int8_t index_ = 0;
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
