"""The README's first program: a hook that clips the gradient of a weight while the backward pass is under way."""
import grapnel as g

x = g.linspace(-1, 1, 64)
y = 3 * x + 0.5  # the line to find
w, b = g.zeros(1, requires_grad=True), g.zeros(1, requires_grad=True)

clipped = 0


def clip(grad):  # sees every gradient of w, and replaces it
    global clipped
    clipped += abs(grad.item()) > 0.5
    return grad.clamp(-0.5, 0.5)


w.register_hook(clip)
optimizer = g.optim.SGD([w, b], lr=0.1)
for step in range(200):
    optimizer.zero_grad()
    g.mse_loss(w * x + b, y).backward()
    optimizer.step()
print(f"w = {w.item():.6g}, b = {b.item():.6g}, clipped {clipped} times")
