"""Scopes that switch recording: as `with`, as decorator, with or without parentheses."""
import functools
import inspect

from grapnel import _core


class _Mode:
    """A scope that is also a decorator. What it decorates runs in a scope of its own in every call."""

    def __call__(self, function):
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generator(*args, **kwargs):
                running = function(*args, **kwargs)
                resume = functools.partial(next, running)
                while True:
                    with self._again():
                        try:
                            value = resume()
                        except StopIteration as end:
                            return end.value
                    # What its user does to this generator happens to the one inside.
                    try:
                        resume = functools.partial(running.send, (yield value))
                    except GeneratorExit:
                        with self._again():
                            running.close()
                        raise
                    except BaseException as error:  # noqa: BLE001
                        resume = functools.partial(running.throw, error)

            return generator

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with self._again():
                return function(*args, **kwargs)

        return wrapped

    def _again(self):
        return type(self)()


class _GradMode(_Mode):
    on = False

    def __new__(cls, function=None):
        self = super().__new__(cls)
        # @no_grad without parentheses
        return self(function) if callable(function) else self

    def __enter__(self):
        self.before = _core.is_grad_enabled()
        _core._set_grad_enabled(self.on)

    def __exit__(self, *error):
        _core._set_grad_enabled(self.before)


class no_grad(_GradMode):
    """Nothing is recorded for backward inside."""


class enable_grad(_GradMode):
    """Recording is on inside."""

    on = True


class set_grad_enabled(_Mode):
    """Switches recording on or off: at once, and as `with` until the block ends."""

    def __init__(self, mode):
        self.on = bool(mode)
        self.before = _core.is_grad_enabled()
        _core._set_grad_enabled(self.on)

    def __call__(self, function):
        _core._set_grad_enabled(self.before)
        return super().__call__(function)

    def _again(self):
        return set_grad_enabled(self.on)

    def __enter__(self):
        _core._set_grad_enabled(self.on)

    def __exit__(self, *error):
        _core._set_grad_enabled(self.before)


class inference_mode(_Mode):
    """Nothing is recorded inside, and tensors made there can never be recorded later."""

    def __new__(cls, mode=True):
        self = super().__new__(cls)
        if callable(mode):
            self.on = True
            return self(mode)
        self.on = bool(mode)
        return self

    def _again(self):
        return inference_mode(self.on)

    def __enter__(self):
        self.before = _core.is_inference_mode_enabled(), _core.is_grad_enabled()
        _core._set_inference_mode(self.on)
        _core._set_grad_enabled(self.before[1] and not self.on)

    def __exit__(self, *error):
        _core._set_inference_mode(self.before[0])
        _core._set_grad_enabled(self.before[1])
