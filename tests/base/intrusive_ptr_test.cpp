#include "grapnel/base/intrusive_ptr.h"

#include <doctest/doctest.h>

#include <thread>
#include <unordered_set>
#include <vector>

using grapnel::IntrusivePtr;
using grapnel::make_intrusive;
using grapnel::RefCount;

namespace {

struct Animal {
  explicit Animal(int* counter) : deaths(counter) {}
  virtual ~Animal() { ++*deaths; }
  void intrusive_retain() const noexcept { count.retain(); }
  void intrusive_release() const noexcept {
    if (count.release()) delete this;
  }
  RefCount count;
  int* deaths;
};
struct Dog : Animal {
  using Animal::Animal;
};

}  // namespace

namespace elsewhere {

struct Plain {
  mutable int owners = 1;
  bool* dead;
};
void intrusive_retain(const Plain* p) noexcept { ++p->owners; }
void intrusive_release(const Plain* p) noexcept {
  if (--p->owners == 0) *p->dead = true;
}

}  // namespace elsewhere

TEST_CASE("an object dies with its last owner") {
  int deaths = 0;
  {
    auto a = make_intrusive<Animal>(&deaths);
    CHECK(a->count.use_count() == 1);
    CHECK(a->count.is_unique());
    {
      IntrusivePtr<Animal> b = a;
      CHECK(a->count.use_count() == 2);
      CHECK_FALSE(a->count.is_unique());
    }
    CHECK(a->count.use_count() == 1);
    CHECK(deaths == 0);
  }
  CHECK(deaths == 1);
}

TEST_CASE("moving an intrusive pointer touches no count and leaves null behind") {
  int deaths = 0;
  auto a = make_intrusive<Dog>(&deaths);
  Dog* const dog = a.get();
  IntrusivePtr<Animal> b = std::move(a);
  CHECK(a == nullptr);
  CHECK(b == dog);
  CHECK(b->count.use_count() == 1);
  b = IntrusivePtr<Animal>();
  CHECK(deaths == 1);
}

TEST_CASE("release hands a count out and adopt takes it back") {
  int deaths = 0;
  auto a = make_intrusive<Animal>(&deaths);
  Animal* raw = a.release();
  CHECK_FALSE(a);
  CHECK(deaths == 0);
  auto b = IntrusivePtr<Animal>::adopt(raw);
  CHECK(b->count.use_count() == 1);
  IntrusivePtr<Animal> c(raw);
  CHECK(b->count.use_count() == 2);
  b.reset();
  CHECK(deaths == 0);
  c.reset();
  CHECK(deaths == 1);
}

TEST_CASE("assigning an intrusive pointer to itself changes nothing") {
  int deaths = 0;
  auto a = make_intrusive<Animal>(&deaths);
  auto& same = a;
  a = same;
  CHECK(a->count.use_count() == 1);
  a = std::move(same);
  CHECK(a);
  CHECK(deaths == 0);
}

TEST_CASE("the old object is gone only after the pointer has its new value") {
  struct Node {
    IntrusivePtr<Node>* owner = nullptr;
    bool* owner_was_null = nullptr;
    RefCount count;
    void intrusive_retain() const noexcept { count.retain(); }
    void intrusive_release() const noexcept {
      if (count.release()) delete this;
    }
    ~Node() { *owner_was_null = *owner == nullptr; }
  };
  IntrusivePtr<Node> p = make_intrusive<Node>();
  bool owner_was_null = false;
  p->owner = &p;
  p->owner_was_null = &owner_was_null;
  p.reset();
  CHECK(owner_was_null);
}

TEST_CASE("free functions found beside the type are used when it has no members") {
  bool dead = false;
  elsewhere::Plain plain{.dead = &dead};
  {
    auto a = IntrusivePtr<elsewhere::Plain>::adopt(&plain);
    auto b = a;
    CHECK(plain.owners == 2);
  }
  CHECK(dead);
}

TEST_CASE("intrusive pointers compare, swap and hash by address") {
  int deaths = 0;
  auto a = make_intrusive<Dog>(&deaths);
  auto b = make_intrusive<Dog>(&deaths);
  IntrusivePtr<Animal> base = a;
  CHECK(base == a);
  CHECK(a != b);
  CHECK(nullptr != a);
  CHECK((a < b) == std::less<Dog*>{}(a.get(), b.get()));
  Dog* const first = a.get();
  swap(a, b);
  CHECK(b == first);
  std::unordered_set<IntrusivePtr<Dog>> set{a, b, a};
  CHECK(set.size() == 2);
}

TEST_CASE("owners on several threads end an object exactly once") {
  int deaths = 0;
  {
    auto shared = make_intrusive<Animal>(&deaths);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([copy = shared] {
        for (int i = 0; i < 1000; ++i) {
          IntrusivePtr<Animal> mine = copy;
          IntrusivePtr<Animal> yours = std::move(mine);
        }
      });
    }
    shared.reset();
    for (auto& thread : threads) thread.join();
  }
  CHECK(deaths == 1);
}
