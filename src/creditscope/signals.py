"""Signals that ask a training to stop: it then saves where it stands, as on Ctrl-C."""

import signal
from types import FrameType


def stop_once(*numbers: signal.Signals) -> None:
    """The first of these signals stops as Ctrl-C does; the others then say the same again and are not heard.

    A hangup that somebody chose to ignore (``nohup``) stays ignored.

    Args:
        numbers: The signals.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    heard = [n for n in numbers if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    for each in heard:
        signal.signal(each, stop)
