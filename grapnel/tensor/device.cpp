#include "grapnel/tensor/device.h"

#include <atomic>
#include <charconv>

#include "grapnel/base/error.h"
#include "grapnel/tensor/device_memory.h"

namespace grapnel {

namespace {
[[noreturn]] void refuse_name(std::string_view text) {
  fail("Device: there is no device \"", text,
       "\".\nDevices are \"cpu\", \"cuda\" and \"cuda:1\".");
}
}  // namespace

void Device::refuse_index(DeviceType type, int index) {
  refuse_name(grapnel::str(type, ':', index));
}

Device::Device(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  int number = 0;
  bool good = kind == "cpu" || kind == "cuda";
  if (good && colon != text.npos) {
    const char *const begin = text.data() + colon + 1, *const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, number);
    good = error == std::errc() && stop == end && number >= 0 &&
           number < (kind == "cpu" ? 1 : kMostDevices);
  }
  if (!good) refuse_name(text);
  *this = Device(kind == "cpu" ? DeviceType::CPU : DeviceType::CUDA, number);
}

std::ostream& operator<<(std::ostream& out, DeviceType t) {
  switch (t) {
    case DeviceType::CPU: return out << "cpu";
    case DeviceType::CUDA: return out << "cuda";
  }
  return out;
}
std::ostream& operator<<(std::ostream& out, Device d) {
  return d.is_cpu() ? out << d.type() : out << d.type() << ':' << int{d.index()};
}

std::string Device::str() const { return grapnel::str(*this); }

namespace {
std::atomic<Device> default_device{Device()};
}  // namespace
Device get_default_device() { return default_device.load(std::memory_order_relaxed); }
void set_default_device(Device device) {
  if (!device.is_cpu()) memory_of(device);  // or it says that there is none
  default_device.store(device, std::memory_order_relaxed);
}

// --- who brings devices ---

namespace {
DeviceTable<DeviceMemory> memories;
}  // namespace

DeviceMemory& memory_of(Device device) { return memories[device]; }
void provide(Device device, DeviceMemory* memory) { memories.set(device, memory); }

int cuda::device_count() {
  int count = 0;
  while (count < kMostDevices && memories.find(Device(kCUDA, count))) ++count;
  return count;
}
bool cuda::is_available() { return device_count() > 0; }

void refuse_device(Device device) {
  const int count = cuda::device_count();
  if (count > 0)
    fail(device, ": there ",
         count == 1 ? "is 1 device, cuda:0."
                    : str("are ", count, " devices, 0 to ", count - 1, "."));
  fail(device,
       ": this program has no CUDA device: Grapnel was built without a CUDA module.\n"
       "cuda::is_available() tells beforehand.");
}

}  // namespace grapnel
