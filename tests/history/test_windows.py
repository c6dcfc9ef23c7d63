"""Every window against the conformance suite."""

from __future__ import annotations

from ctxkit.history import Hysteresis, SemanticWindow, Shortened, SlidingWindow, TimeDecayWindow
from ctxkit.protocols import Window
from ctxkit.testing import WindowConformance


class TestSliding(WindowConformance):
    def make_window(self) -> Window:
        return SlidingWindow(head=2, pinned=("m3",))


class TestSemantic(WindowConformance):
    def make_window(self) -> Window:
        return SemanticWindow()


class TestTimeDecay(WindowConformance):
    def make_window(self) -> Window:
        return TimeDecayWindow()


class TestHysteresis(WindowConformance):
    def make_window(self) -> Window:
        return Hysteresis(high_water=120, low=0.5)


class TestHysteresisAroundSliding(WindowConformance):
    def make_window(self) -> Window:
        return Hysteresis(window=SlidingWindow())


class TestHysteresisAroundSemantic(WindowConformance):
    def make_window(self) -> Window:
        return Hysteresis(window=SemanticWindow(), low=0.6)


class TestShortened(WindowConformance):
    """By a limit that its messages keep; what it does beyond is tested by example."""

    def make_window(self) -> Window:
        return Shortened(window=Hysteresis(), max_tokens=600)
