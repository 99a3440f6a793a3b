"""Learning rates that change over time. A schedule is a function of the number of steps, so a run that is resumed has the very same rates."""
from grapnel import _core


class LRScheduler:
    """Base of schedules. One that is written in Python has a get_lr() that returns the rates of all groups at self.last_epoch."""

    _schedule = None

    def __init__(self, optimizer, last_epoch=-1):
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    def get_lr(self):
        raise NotImplementedError("get_lr: a schedule that is written in Python defines it")

    def get_last_lr(self):
        """The rates of the groups as they are now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self):
        """Goes on by one and sets the rates of all groups."""
        self.last_epoch += 1
        for group, lr in zip(self.optimizer.param_groups, self.get_lr()):
            group["lr"] = lr

    def state_dict(self):
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict):
        self.__dict__.update(state_dict)


class _Native(LRScheduler):
    """A schedule of the C++ library."""

    def __init__(self, optimizer, *arguments):
        self.optimizer = optimizer
        self.base_lrs = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self._impl = _core._Scheduler(type(self).__name__, optimizer._impl, *arguments)

    last_epoch = property(lambda self: self._impl.last_epoch())

    def step(self):
        self._impl.step()

    def get_last_lr(self):
        return self._impl.get_last_lr()

    def state_dict(self):
        return self._impl.state_dict()

    def load_state_dict(self, state_dict):
        self._impl.load_state_dict(state_dict)

    def __repr__(self):
        return f"{type(self).__name__}(last_epoch={self.last_epoch}, lr={self.get_last_lr()})"


class LambdaLR(_Native):
    """The first rate times lr_lambda(epoch), or times one function for each group."""

    def __init__(self, optimizer, lr_lambda):
        functions = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * len(optimizer.param_groups)
        if len(functions) != len(optimizer.param_groups):
            raise ValueError(f"Expected {len(optimizer.param_groups)} lr_lambdas, but got {len(functions)}")
        self.lr_lambdas = functions
        LRScheduler.__init__(self, optimizer)

    last_epoch = -1
    step, get_last_lr, state_dict = LRScheduler.step, LRScheduler.get_last_lr, lambda self: {"last_epoch": self.last_epoch}

    def load_state_dict(self, state_dict):
        self.last_epoch = state_dict["last_epoch"] - 1
        self.step()

    def get_lr(self):
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas)]


class StepLR(_Native):
    """Times gamma every step_size epochs."""

    def __init__(self, optimizer, step_size, gamma=0.1):
        super().__init__(optimizer, [step_size, gamma])


class MultiStepLR(_Native):
    """Times gamma at every milestone."""

    def __init__(self, optimizer, milestones, gamma=0.1):
        super().__init__(optimizer, [gamma], list(milestones))


class ExponentialLR(_Native):
    """Times gamma every epoch."""

    def __init__(self, optimizer, gamma):
        super().__init__(optimizer, [gamma])


class LinearLR(_Native):
    """From start_factor to end_factor of the rate in equal steps: a warm-up."""

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5):
        super().__init__(optimizer, [start_factor, end_factor, total_iters])


class ConstantLR(_Native):
    """`factor` times the rate for total_iters epochs, then the rate itself."""

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5):
        super().__init__(optimizer, [factor, total_iters])


class CosineAnnealingLR(_Native):
    """Down to eta_min in T_max epochs along half a cosine, and up again in the next."""

    def __init__(self, optimizer, T_max, eta_min=0.0):
        super().__init__(optimizer, [T_max, eta_min])


class OneCycleLR(_Native):
    """Up to max_lr and down far below the first rate; the momentum (or beta1) goes the other way."""

    def __init__(self, optimizer, max_lr, total_steps, pct_start=0.3, anneal_strategy="cos", cycle_momentum=True, base_momentum=0.85, max_momentum=0.95,
                 div_factor=25.0, final_div_factor=1e4):
        super().__init__(optimizer, [max_lr, total_steps, pct_start, anneal_strategy == "linear", cycle_momentum, base_momentum, max_momentum, div_factor,
                                     final_div_factor])


class SequentialLR(_Native):
    """One schedule after the other; schedule i + 1 begins at milestones[i]."""

    def __init__(self, optimizer, schedulers, milestones):
        super().__init__(optimizer, [], list(milestones), [s._impl for s in schedulers])


class ReduceLROnPlateau:
    """Times factor when the metric has stopped to improve. step() takes the metric."""

    def __init__(self, optimizer, mode="min", factor=0.1, patience=10, threshold=1e-4, threshold_mode="rel", cooldown=0, min_lr=0.0, eps=1e-8):
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        self.optimizer = optimizer
        self._impl = _core._Plateau(optimizer._impl, mode == "max", factor, patience, threshold, threshold_mode == "abs", cooldown, min_lr, eps)

    last_epoch = property(lambda self: self._impl.last_epoch())

    def step(self, metrics):
        self._impl.step(float(metrics))

    def get_last_lr(self):
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self):
        return self._impl.state_dict()

    def load_state_dict(self, state_dict):
        self._impl.load_state_dict(state_dict)

    def __repr__(self):
        return f"{type(self).__name__}(last_epoch={self.last_epoch}, lr={self.get_last_lr()})"
