"""Ctrl-C between two epochs, and not inside one.

Python raises KeyboardInterrupt wherever it happens to be. In a backward pass that may be a callback of torch's or a
finaliser, which swallow exceptions: the training would go on as if nobody had asked.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_signals(*numbers: int) -> Iterator[Callable[[], None]]:
    """Hold back SIGINT and SIGTERM; the function that is yielded hands the one that has come to its own handler.

    A second signal does not wait. Signals without a handler of Python's keep their effect, and outside the main thread
    nothing is held back.

    >>> with held_signals() as deliver:
    ...     signal.raise_signal(signal.SIGINT)
    ...     print("goes on")
    ...     try:
    ...         deliver()
    ...     except KeyboardInterrupt:
    ...         print("now")
    goes on
    now
    """
    numbers = numbers or (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.getsignal(number) for number in numbers}
    held: list[int] = []

    def hand_over(number: int, frame: FrameType | None = None) -> None:
        handler = handlers[number]
        if callable(handler):
            handler(number, frame)

    def hold(number: int, frame: FrameType | None) -> None:
        if held:
            hand_over(number, frame)
        held.append(number)

    def deliver() -> None:
        if held:
            number = held[0]
            held.clear()
            hand_over(number)

    own = threading.current_thread() is threading.main_thread()
    try:
        for number, handler in handlers.items():
            if own and callable(handler):
                signal.signal(number, hold)
        yield deliver
    finally:
        for number, handler in handlers.items():
            if own and callable(handler):
                signal.signal(number, handler)
