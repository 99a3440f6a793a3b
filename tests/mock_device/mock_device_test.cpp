/// Tensors on a device: how they get there and back, what they refuse, and what waits.
#include "tests/mock_device/mock_device.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {

const Device kFirst(kCUDA, 0), kSecond(kCUDA, 1);

struct Devices {
  Devices() { mock::install(); }
};

}  // namespace

TEST_CASE_FIXTURE(Devices, "the mock device bites: host code that touches its memory dies") {
  const Tensor x = ones({100}, kFirst);
  auto* const p = static_cast<volatile float*>(x.data_ptr());
  REQUIRE(x.data_ptr() != nullptr);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    _exit(p[3] == 1.0f);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) ? WTERMSIG(status) : 0) == SIGSEGV);
}

TEST_CASE_FIXTURE(Devices, "host code of the library that asks a device for data gets an error") {
  const Tensor x = ones({2, 2}, kSecond);
  const char* const text = "data: these values are on cuda:1.\nCopy them first: t.cpu().";
  CHECK_THROWS_WITH(x.impl().host(), text);
  CHECK_THROWS_WITH(x.impl().storage->host(), text);
  CHECK_THROWS_WITH((x.accessor<float, 2>()),
                    "accessor: these values are on cuda:1.\nCopy them first: t.cpu().");
}

TEST_CASE_FIXTURE(Devices, "values go to a device and back, and gradients go the other way") {
  const Tensor x = tensor({1.0, 2.0, 3.0}, requires_grad());
  const Tensor y = x.cuda();
  CHECK(y.device() == kFirst);
  CHECK(y.is_cuda());
  CHECK(y.requires_grad());
  CHECK(y.grad_fn()->name() == "to_device");
  const Tensor z = y.to(kSecond) * 2;
  CHECK(z.device() == kSecond);
  CHECK(z.cpu().equal(x * 2));
  (z * z).sum().backward();
  CHECK(x.grad().device() == Device());
  CHECK(x.grad().equal(tensor({8.0, 16.0, 24.0})));
  CHECK(y.to(kFirst).is_same(y));
  CHECK(x.to(kFirst, kFloat64).dtype() == kFloat64);
  CHECK(y.to(TensorOptions(kFloat64)).device() == kFirst);
  CHECK(y.to(TensorOptions(kSecond)).dtype() == kFloat32);
}

TEST_CASE_FIXTURE(Devices, "copy_ writes across devices, converted and broadcast") {
  const Tensor host = tensor({1.0, 2.0});
  const Tensor first = zeros({3, 2}, TensorOptions(kFloat64).device(kFirst)),
               second = zeros({3, 2}, TensorOptions(kInt64).device(kSecond));
  first.copy_(host);
  second.copy_(first);
  CHECK(second.device() == kSecond);
  CHECK(second.cpu().equal(tensor({{1, 2}, {1, 2}, {1, 2}})));
  host.copy_(first.select(0, 0) * 5);
  CHECK(host.equal(tensor({5.0, 10.0})));
  const Tensor w = tensor({1.0, 1.0}, requires_grad());
  (first.detach().clone().copy_(w) * 3).sum().backward();
  CHECK(w.grad().equal(tensor({9.0, 9.0})));
}

TEST_CASE_FIXTURE(Devices, "factories make tensors where they are told, with the same numbers") {
  const TensorOptions there = device(kFirst);
  for (const auto& make : std::vector<std::function<Tensor(const TensorOptions&)>>{
           [](auto o) { return zeros({2, 3}, o); }, [](auto o) { return ones({2, 3}, o); },
           [](auto o) { return full({2}, 7, o); }, [](auto o) { return arange(5, o); },
           [](auto o) { return linspace(0, 1, 5, o); }, [](auto o) { return eye(3, o); },
           [](auto o) { return tensor({{1, 2}, {3, 4}}, o); },
           [](auto o) { return scalar_tensor(2.5, o); }, [](auto o) { return rand({9}, o); },
           [](auto o) { return randn({9}, o); }, [](auto o) { return randint(9, {9}, o); },
           [](auto o) { return randperm(9, o); }}) {
    manual_seed(3);
    const Tensor here = make(TensorOptions());
    manual_seed(3);
    const Tensor far = make(there);
    CHECK(far.device() == kFirst);
    CHECK(same_bits(far, here));
    CHECK(zeros_like(far).device() == kFirst);
    CHECK(zeros_like(far, device(kCPU)).device() == Device());
  }
}

TEST_CASE_FIXTURE(Devices, "numbers and 0-dimensional tensors of the CPU may stand beside others") {
  const Tensor x = tensor({1.0, 2.0}, device(kFirst)), w = tensor(3.0, requires_grad());
  CHECK((2 * x + 1).cpu().equal(tensor({3.0, 5.0})));
  const Tensor y = w * x;
  CHECK(y.device() == kFirst);
  y.sum().backward();
  CHECK(w.grad().device() == Device());
  CHECK(w.grad().item<float>() == 3);
  Tensor z = x.clone();
  z.mul_(w.detach());
  CHECK(z.cpu().equal(tensor({3.0, 6.0})));
}

TEST_CASE_FIXTURE(Devices, "operands on different devices are refused") {
  const Tensor a = ones({2}, kFirst), b = ones({2}), c = ones({2}, kSecond);
  const std::string rest = " (Numbers and 0-dimensional CPU tensors may stay.)";
  CHECK_THROWS_WITH(a + b, ("add: operands are on different devices: a is on cuda:0, b on cpu.\n"
                            "Move one of them: b.to(a.device())." +
                            rest)
                               .c_str());
  CHECK_THROWS_WITH(b + c, ("add: operands are on different devices: b is on cuda:1, a on cpu.\n"
                            "Move one of them: a.to(b.device())." +
                            rest)
                               .c_str());
  CHECK_THROWS_WITH(a * c, ("mul: operands are on different devices: a is on cuda:0, b on cuda:1.\n"
                            "Move one of them: b.to(a.device())." +
                            rest)
                               .c_str());
  CHECK_THROWS_WITH(matmul(a, b),
                    ("matmul: operands are on different devices: a is on cuda:0, b on cpu.\n"
                     "Move one of them: b.to(a.device())." +
                     rest)
                        .c_str());
  CHECK_THROWS_AS(b.add_(a), Error);
  CHECK_THROWS_WITH(scalar_tensor(1).add_(scalar_tensor(1, device(kFirst))),
                    "add_: the tensor to write is on cpu, and another operand on cuda:0.\n"
                    "Move one of them first.");
  CHECK_THROWS_WITH(ones({1}, Device(kCUDA, 7)), "cuda:7: there are 2 devices, 0 to 1.");
}

TEST_CASE_FIXTURE(Devices, "calls do not wait for the device; whoever looks at a value does") {
  const Tensor x = ones({1000}, device(kFirst).requires_grad(true));
  const uint64_t before = mock::counts().waits;
  Tensor y;
  {
    const mock::Hold nothing_happens;
    y = x;
    for (int i = 0; i < 50; ++i) y = y * 2 - 1;
    y.sum().backward({}, {}, false);
  }
  CHECK(mock::counts().waits == before);
  CHECK(y[7].item<float>() == 1);
  CHECK(mock::counts().waits == before + 1);
}

TEST_CASE_FIXTURE(Devices, "an error of values comes when somebody waits, and then it is over") {
  const Tensor x = arange(4, device(kFirst)), wrong = tensor({1, 9}, device(kFirst));
  const Tensor picked = x.index_select(0, wrong);
  CHECK_THROWS_AS(picked.cpu(), Error);
  CHECK(x.cpu().equal(arange(4)));
}

TEST_CASE_FIXTURE(Devices, "printing, equal, allclose, nonzero, masks and one_hot read a device") {
  const Tensor x = tensor({{1.5, 0.0}, {-2.0, 4.0}}, device(kSecond));
  CHECK(x.str() == (x.cpu().str() + " on cuda:1"));
  CHECK(x.equal(x.clone()));
  CHECK_FALSE(x.equal(x + 1));
  CHECK(x.allclose(x * 1.0000001));
  CHECK(x.nonzero().cpu().equal(x.cpu().nonzero()));
  CHECK(x.masked_select(x > 0).cpu().equal(tensor({1.5, 4.0})));
  CHECK(x.index({x > 0}).cpu().equal(tensor({1.5, 4.0})));
  CHECK(x.index({tensor({1})}).cpu().equal(tensor({{-2.0, 4.0}})));
  CHECK(one_hot(tensor({2, 0}, device(kSecond)), -1).cpu().equal(tensor({{0, 0, 1}, {1, 0, 0}})));
}

TEST_CASE_FIXTURE(Devices, "memory of a device goes back with the last tensor over it") {
  const uint64_t before = mock::bytes_in_use();
  {
    Tensor x = ones({4096}, kFirst);
    const Tensor part = x.narrow(0, 5, 10);
    x.reset();
    CHECK(mock::bytes_in_use() >= before + 4 * 4096);
    CHECK(part.sum().item<float>() == 10);
  }
  CHECK(mock::bytes_in_use() == before);
}

TEST_CASE_FIXTURE(Devices, "a storage is used by one queue at a time, whoever reads or writes it") {
  const uint64_t before = mock::counts().orders;
  Tensor x, y;
  {
    const mock::Hold slow(0);
    x = full({64}, 3.0, kFirst);
    CHECK(x.impl().storage->home() == 0);
    const mock::OnQueue other(1);
    // Queue 1 runs, but not before queue 0 has made what it reads.
    y = x * x;
    CHECK(x.impl().storage->home() == 1);
    CHECK(y.impl().storage->home() == 1);
    CHECK(mock::counts().orders == before + 1);
  }
  CHECK(y.impl().storage->home() == 1);
  CHECK((y + x).sum().item<float>() == 64 * 12);
  CHECK(x.impl().storage->home() == 0);
}

TEST_CASE_FIXTURE(Devices, "a write waits for another queue that still reads") {
  const Tensor x = ones({1000}, kFirst);
  Tensor sum;
  {
    const mock::Hold slow(1);
    {
      const mock::OnQueue other(1);
      sum = x.sum();
    }
    x.fill_(7.0);  // in queue 0, which runs
    CHECK(x.impl().storage->home() == 0);
  }
  CHECK(sum.item<float>() == 1000);
  CHECK(x.sum().item<float>() == 7000);
}

TEST_CASE_FIXTURE(Devices, "queues on different memory are not put in order") {
  const Tensor x = ones({8}, kFirst);
  const uint64_t before = mock::counts().orders;
  const mock::OnQueue other(1);
  const Tensor y = ones({8}, kFirst) * 2;
  CHECK(mock::counts().orders == before);
  CHECK(y.sum().item<float>() == 16);
  CHECK(x.impl().storage->home() == 0);
}

TEST_CASE_FIXTURE(Devices, "memory goes back to the queue that used it last, and is kept until trimmed") {
  DeviceMemory& memory = memory_of(kFirst);
  Tensor x = empty({3000}, kFirst);
  {
    const mock::OnQueue other(1);
    x.fill_(1.0);
  }
  const MemoryStats held = memory.stats();
  x.reset();
  const MemoryStats freed = memory.stats();
  CHECK(freed.in_use < held.in_use);
  CHECK(freed.cached - held.cached == held.in_use - freed.in_use);
  CHECK(freed.peak >= held.in_use);
  for (QueueId queue = 0; queue < mock::kQueues; ++queue) memory.synchronize(queue);
  memory.trim();
  CHECK(memory.stats().cached == 0);
  CHECK(memory.stats().in_use == freed.in_use);
  CHECK(ones({3000}, kFirst).sum().item<float>() == 3000);
}

TEST_CASE_FIXTURE(Devices, "the text of a graph says where its values are, and is read back") {
  const auto fn = [](const std::vector<Tensor>& x) { return std::vector{x[0] * 2 + x[1]}; };
  const Graph graph = trace(fn, {ones({2}, kSecond), ones({2}, kSecond)});
  const std::string text = graph.str();
  CHECK(text ==
        "graph(a: f32[2] on cuda:1, b: f32[2] on cuda:1) {\n"
        "  c = mul(a, 2) : f32[2] on cuda:1\n"
        "  d = add(c, b) : f32[2] on cuda:1\n"
        "  return d\n}\n");
  const Graph again = Graph::parse(text);
  CHECK(again.str() == text);
  CHECK(again.values()[0].device == kSecond);
  CHECK(again.run({ones({2}, kSecond), ones({2}, kSecond)})[0].cpu().equal(tensor({3.0, 3.0})));
  const Graph here = trace(fn, {ones({2}), ones({2})});
  CHECK(graph.difference(here).what == "input 0 is f32[2] on cuda:1, was f32[2]");
  CHECK_THROWS_WITH(Graph::parse("graph(a: f32[2] on cuda:64) {\n return a\n}\n"),
                    "Graph::parse: line 1: there is no device \"cuda:64\".");
  // A value may be called so.
  CHECK(Graph::parse("graph(a: f32[2]) {\n  b = neg(a) : f32[2]\n  on = neg(b) : f32[2]\n  return on\n}\n")
            .count("neg") == 2);
}
