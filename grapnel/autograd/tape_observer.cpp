#include "grapnel/autograd/tape_observer.h"

#include "grapnel/autograd/grad_mode.h"

namespace grapnel {

struct TapeObservers {
  std::vector<std::weak_ptr<TapeObserver>> all;
};

void TapeObserver::add(const std::shared_ptr<TapeObserver>& observer) {
  wanted_in_context<&Context::observers>().all.push_back(observer);
}

template <class Tell>
void TapeObserver::tell_all(Tell&& tell_one) {
  Pause pause;
  NoGradGuard no_grad;
  auto& all = pause.observers_->all;
  bool ended = false;
  for (size_t i = 0; i < all.size(); ++i) {
    if (const auto observer = all[i].lock()) tell_one(*observer);
    else ended = true;
  }
  if (!ended) return;
  std::erase_if(all, [](const auto& observer) { return observer.expired(); });
  if (all.empty()) pause.observers_ = nullptr;
}

void TapeObserver::tell(Node& node, std::span<const Tensor> outputs) {
  tell_all([&](TapeObserver& observer) { observer.on_op(node, outputs); });
}
void TapeObserver::tell_hook(const HookLabel& label, HookKind kind, const Node& node,
                             const Tensor& result) {
  tell_all([&](TapeObserver& observer) { observer.on_hook(label, kind, node, result); });
}

}  // namespace grapnel
