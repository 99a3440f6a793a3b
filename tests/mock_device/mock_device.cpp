#include "tests/mock_device/mock_device.h"

#include <array>
#include <atomic>
#include <future>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "grapnel/base/error.h"
#include "grapnel/ops/defs/copy.h"
#include "grapnel/ops/evaluator.h"
#include "grapnel/ops/op_table.h"
#include "tests/mock_device/arena.h"
#include "tests/mock_device/queue.h"

namespace grapnel::mock {

namespace {

constexpr int kDevices = 2;
thread_local QueueId current = 0;

struct AtomicCounts {
  std::atomic<uint64_t> calls{0}, copies{0}, waits{0}, orders{0};
} counted;

/// Stands for tensors of a device while the CPU computes on them in a queue. Tensors that share memory do so
/// here, too, and one tensor is one tensor.
class Stands {
 public:
  Stands(const Arena& arena, QueueId queue) : arena_(arena), queue_(queue) {}
  Tensor operator()(const Tensor& t) {
    if (!t.defined()) return {};
    for (const auto& [known, stand] : tensors_)
      if (known == t.impl_ptr()) return stand;
    const TensorImpl& impl = t.impl();
    Tensor stand(
        TensorImpl::create(over(*impl.storage), impl.dtype, impl.sizes, impl.strides, impl.offset));
    stand.impl().wrapped_number = impl.wrapped_number;
    tensors_.emplace_back(&impl, stand);
    return stand;
  }

 private:
  StoragePtr over(Storage& storage) {
    for (const auto& [known, stand] : storages_)
      if (known == &storage) return stand;
    StoragePtr stand;
    if (storage.device().is_cpu()) {
      // A number: another may stand there when the call is run.
      stand = Storage::create(storage.bytes(), kCPU);
      std::memcpy(stand->host(), storage.host(), storage.bytes());
    } else {
      storage.use_on(queue_);
      stand = Storage::borrow(arena_.behind(storage.address()), storage.bytes(), {}, kCPU);
    }
    storages_.emplace_back(&storage, stand);
    return stand;
  }
  const Arena& arena_;
  const QueueId queue_;
  std::vector<std::pair<const TensorImpl*, Tensor>> tensors_;
  std::vector<std::pair<const Storage*, StoragePtr>> storages_;
};

/// Arguments of a call that is run later.
struct Call {
  const Op* op;
  std::vector<Tensor> inputs, outputs;
  std::vector<std::max_align_t> attrs;

  void run() {
    std::vector<const Tensor*> pointers;
    for (const Tensor& t : inputs) pointers.push_back(&t);
    evaluator_of(kCPU).run(*op, pointers, attrs.data(), outputs);
  }
};

class MockDevice final : public DeviceMemory, public Evaluator {
 public:
  explicit MockDevice(Device self) : self_(self), queues_{Queue(seed(0)), Queue(seed(1))} {}
  void hold(QueueId queue, bool on) { queues_[queue].hold(on); }

  // --- DeviceMemory ---
  void* allocate(size_t bytes, QueueId queue) override {
    void* const address = arena_.take(bytes, queue);
    spoil(address, bytes, queue);
    return address;
  }
  void deallocate(void* address, size_t bytes, QueueId queue) noexcept override {
    spoil(address, bytes, queue);
    arena_.give_back(address, bytes, queue);
  }
  void copy_in(void* to, const void* host, size_t bytes, QueueId queue) override {
    const auto* from = static_cast<const char*>(host);
    queues_[queue].put([to = arena_.behind(to), kept = std::vector<char>(from, from + bytes)] {
      std::memcpy(to, kept.data(), kept.size());
    });
  }
  void copy_out(void* host, const void* from, size_t bytes, QueueId queue) override {
    queues_[queue].put([host, from = arena_.behind(from), bytes] { std::memcpy(host, from, bytes); });
    synchronize(queue);
  }
  void copy(void* to, const void* from, size_t bytes, QueueId queue) override {
    queues_[queue].put([to = arena_.behind(to), from = arena_.behind(from), bytes] {
      std::memcpy(to, from, bytes);
    });
  }
  void wait_for(QueueId waits, QueueId other) override {
    auto done = std::make_shared<std::promise<void>>();
    queues_[other].put([done] { done->set_value(); });
    queues_[waits].put([done] { done->get_future().wait(); });
    ++counted.orders;
  }
  void synchronize(QueueId queue) override {
    ++counted.waits;
    queues_[queue].wait();
  }
  QueueId current_queue() override { return current; }
  MemoryStats stats() const override { return arena_.stats(); }
  void trim() override { arena_.trim(); }

  // --- Evaluator ---
  Tensor empty(const TensorSpec& spec) override {
    return Tensor(TensorImpl::empty(spec.sizes, spec.dtype, spec.device));
  }
  void run(const Op& op, Inputs inputs, const void* attrs, std::span<Tensor> out) override {
    if (op.views) return;
    if (&op == &op_of<ToDevice>) return copy(out[0], *inputs[0]);
    if (&op == &op_of<Copy> || &op == &op_of<Fill>) return copy(out[0], *inputs[1]);
    const QueueId queue = current_queue();
    Stands stands(arena_, queue);
    auto call = std::make_shared<Call>();
    call->op = &op;
    for (const Tensor* t : inputs) call->inputs.push_back(stands(*t));
    for (const Tensor& t : out) call->outputs.push_back(stands(t));
    call->attrs.resize(op.attrs_size / sizeof(std::max_align_t) + 1);
    if (op.attrs_size > 0) std::memcpy(call->attrs.data(), attrs, op.attrs_size);
    ++counted.calls;
    queues_[queue].put([call] { call->run(); });
  }
  void copy(const Tensor& target, const Tensor& source) override {
    ++counted.copies;
    if (target.is_cpu()) return evaluator_of(kCPU).copy(target, on_host(source));
    if (target.device() != self_)
      return evaluator_of(target.device()).copy(target, on_host(source));
    const bool here = source.device() == self_;
    const QueueId queue = current_queue();
    Stands stands(arena_, queue);
    // What comes from elsewhere may change after the call.
    const Tensor to = stands(target), from = here ? stands(source) : on_host(source);
    const Tensor* const inputs[] = {&to, &from};
    auto call = std::make_shared<Call>();
    call->op = &op_of<Copy>;
    call->inputs = {*inputs[0], *inputs[1]};
    call->outputs = {to};
    call->attrs.resize(1);
    queues_[queue].put([call] { call->run(); });
  }
  void read(const Tensor& t, void* host) override {
    if (t.is_cpu()) return evaluator_of(kCPU).read(t, host);
    const QueueId queue = current_queue();
    Stands stands(arena_, queue);
    const Tensor from = stands(t);
    queues_[queue].put([from, host] { evaluator_of(kCPU).read(from, host); });
    synchronize(queue);
  }

 private:
  /// When the queues dawdle.
  uint64_t seed(uint64_t queue) const { return static_cast<uint64_t>(self_.index()) + 7 + 2 * queue; }
  /// Bytes that are no number in any type.
  void spoil(void* address, size_t bytes, QueueId queue) noexcept {
    queues_[queue].put([to = arena_.behind(address), bytes] { std::memset(to, 0xff, bytes); });
  }
  /// A copy of the values on the CPU, whatever device they are on.
  static Tensor on_host(const Tensor& t) {
    Tensor copy(TensorImpl::empty(t.shape(), t.dtype(), kCPU));
    if (t.numel() > 0) evaluator_of(t.device()).read(t, copy.impl().host());
    return copy;
  }

  const Device self_;
  Arena arena_;
  std::array<Queue, kQueues> queues_;
};

std::vector<MockDevice*>& devices() {
  static auto* const all = new std::vector<MockDevice*>;
  return *all;
}

}  // namespace

void install() {
  if (!devices().empty()) return;
  for (int8_t i = 0; i < kDevices; ++i) {
    const Device device(kCUDA, i);
    MockDevice* const mock = devices().emplace_back(new MockDevice(device));
    provide(device, static_cast<DeviceMemory*>(mock));
    provide(device, static_cast<Evaluator*>(mock));
  }
}

Counts counts() {
  return {.calls = counted.calls,
          .copies = counted.copies,
          .waits = counted.waits,
          .orders = counted.orders};
}
uint64_t bytes_in_use() {
  uint64_t sum = 0;
  for (MockDevice* device : devices()) sum += device->stats().in_use;
  return sum;
}

namespace {
void hold(std::optional<QueueId> queue, bool on) {
  for (MockDevice* device : devices())
    for (QueueId q = 0; q < kQueues; ++q)
      if (!queue || *queue == q) device->hold(q, on);
}
}  // namespace

Hold::Hold(std::optional<QueueId> queue) : queue_(queue) { hold(queue_, true); }
Hold::~Hold() { hold(queue_, false); }

OnQueue::OnQueue(QueueId queue) : before_(std::exchange(current, queue)) {}
OnQueue::~OnQueue() { current = before_; }

}  // namespace grapnel::mock
