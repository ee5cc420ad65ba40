"""The pickled batches of CIFAR-10 and CIFAR-100, read by a stack machine that imports nothing and calls nothing.

Python's own unpickler can be made to run any code, to reserve any memory and to hash for ever. This one knows the
opcodes that dicts, lists, tuples, bytes, text, integers and numpy arrays need; an array stays a description of
itself (a few allowed names, their arguments, their state) until its shape, dtype and bytes have been checked.
"""

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from creditscope.data.dataset import Array
from creditscope.errors import BadFile

# A published batch of CIFAR-10 has about 40,000 opcodes, the training file of CIFAR-100 about 200,000.
MAX_OPCODES = 1_000_000
PIXELS = 3 * 32 * 32

_RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_FROM_BUFFER = ("numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer")
_ENCODE = "_codecs encode"
_DTYPE = "numpy dtype"
_ALLOWED = {*_RECONSTRUCT, *_FROM_BUFFER, _ENCODE, _DTYPE, "numpy ndarray"}
_INTEGERS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
_VALUES = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True)
class _Name:
    """An allowed global, never looked up."""

    text: str


@dataclass
class _Object:
    """What an allowed global would have built, as a description."""

    name: str
    args: tuple[Any, ...]
    state: Any = None


class _Refused(Exception):
    """The pickle asks for something a batch of images never needs."""


def decode_images(data: bytes, where: str, kind: str, labels: str, classes: int) -> tuple[Array, Array]:
    """The images and labels of one pickled batch, checked.

    Args:
        data: The content of the file.
        where: The file's name, for messages.
        kind: Which data set it should be of, likewise.
        labels: Under which key the labels lie.
        classes: How many there are.

    Returns:
        uint8 (n, 3, 32, 32) and int64 (n,).
    """
    x, y = decode_batch(data, where, kind, labels)
    if x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != PIXELS or y.ndim != 1:
        raise BadFile(f"{where}: wanted uint8 data of shape (n, {PIXELS}), found {x.dtype} {x.shape}")
    check_labels(x, y, where, kind, classes)
    return x.reshape(-1, 3, 32, 32), y


def check_labels(x: Array, y: Array, where: str, kind: str, classes: int) -> None:
    """Refuse images without their labels, and labels of another data set.

    Args:
        x: Images.
        y: Labels.
        where: The file's name, for messages.
        kind: Which data set it should be of, likewise.
        classes: How many classes that has.
    """
    if len(x) == 0 or len(x) != len(y):
        raise BadFile(f"{where}: {len(y)} labels for {len(x)} images; fetch the file again")
    if y.min() < 0 or y.max() >= classes:
        raise BadFile(f"{where}: wanted labels 0..{classes - 1}, found {y.min()}..{y.max()}; this is not {kind}")


def decode_batch(data: bytes, where: str, kind: str = "CIFAR-10", labels: str = "labels") -> tuple[Array, Array]:
    """Read the images and labels of one pickled batch.

    Args:
        data: The content of the file.
        where: The file's name, for messages.
        kind: Which data set it should be of, likewise.
        labels: Under which key the labels lie.

    Returns:
        uint8 (n, 3072) rows and int64 (n,) labels.
    """
    try:
        batch = _Machine().run(data)
        if not isinstance(batch, dict):
            raise _Refused("it is not a dict")
        fields = {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
        for key in ("data", labels):
            if key not in fields:
                raise _Refused(f"it has no {key!r}")
        y = fields[labels]
        if isinstance(y, list) and all(type(label) is int for label in y):
            labels_array: Array = np.array(y, dtype=np.int64)
        else:
            labels_array = _array(y).astype(np.int64)
        return _array(fields["data"]), labels_array
    except _Refused as error:
        raise BadFile(f"{where}: not a {kind} python batch: {error}; fetch the file again") from None
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError):
        raise BadFile(f"{where}: a truncated or damaged {kind} python batch; fetch the file again") from None


class _Machine:
    """The stack, the marked stacks below it and the memo of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        """The value a pickle describes.

        Args:
            data: The pickle.
        """
        for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if number >= MAX_OPCODES:
                raise _Refused(f"it has more than {MAX_OPCODES:,} opcodes")
            self._step(opcode.name, argument)
        return self.stack.pop()

    def _step(self, opcode: str, argument: Any) -> None:
        stack = self.stack
        if opcode in _VALUES:
            stack.append(argument)
        elif opcode in ("SHORT_BINSTRING", "BINSTRING"):
            # Python 2 wrote bytes as strings; pickletools gives them as latin-1 text.
            stack.append(argument.encode("latin-1"))
        elif opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode]())
        elif opcode in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = stack[-1]
        elif opcode == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif opcode in ("BINGET", "LONG_BINGET"):
            stack.append(self.memo[argument])
        elif opcode == "MARK":
            self.below.append(stack)
            self.stack = []
        elif opcode == "TUPLE":
            values = self._marked()
            self.stack.append(tuple(values))
        elif opcode in _TUPLES:
            stack.append(tuple(self._pop(_TUPLES[opcode])))
        elif opcode in ("APPEND", "APPENDS"):
            values = self._pop(1) if opcode == "APPEND" else self._marked()
            _expect(self.stack[-1], list).extend(values)
        elif opcode in ("SETITEM", "SETITEMS"):
            values = self._pop(2) if opcode == "SETITEM" else self._marked()
            self._set_items(values)
        elif opcode == "GLOBAL":
            stack.append(_name(argument))
        elif opcode == "STACK_GLOBAL":
            module, name = self._pop(2)
            stack.append(_name(f"{module} {name}"))
        elif opcode == "REDUCE":
            name, args = self._pop(2)
            stack.append(_describe(_expect(name, _Name).text, _expect(args, tuple)))
        elif opcode == "BUILD":
            (state,) = self._pop(1)
            _expect(stack[-1], _Object).state = state
        elif opcode not in ("PROTO", "FRAME", "STOP"):
            raise _Refused(f"it uses the opcode {opcode}")

    def _set_items(self, values: list[Any]) -> None:
        target = _expect(self.stack[-1], dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str | bytes):
                raise _Refused(f"it has a key of type {type(key).__name__}")
            target[key] = value

    def _pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise _Refused("its stack runs empty")
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def _marked(self) -> list[Any]:
        values, self.stack = self.stack, self.below.pop()
        return values


def _expect(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        wanted, came = (each.__name__.strip("_").lower() for each in (kind, type(value)))
        raise _Refused(f"its parts do not fit together (wanted {wanted}, found {came})")
    return value


def _name(text: str) -> _Name:
    if text not in _ALLOWED:
        raise _Refused(f"it asks for {text.replace(' ', '.', 1)[:80]!r}, which no batch of images needs")
    return _Name(text)


def _describe(name: str, args: tuple[Any, ...]) -> Any:
    if name == _ENCODE:
        # How Python 3 writes bytes in protocol 2.
        text, encoding = args
        if encoding not in ("latin1", "latin-1"):
            raise _Refused("it encodes bytes in an unknown way")
        return _expect(text, str).encode("latin-1")
    return _Object(name, args)


def _array(value: Any) -> Array:
    """The numpy array an object describes, of integers only, its bytes exactly as many as its shape needs."""
    made = _expect(value, _Object)
    if made.name in _RECONSTRUCT:
        _, shape, dtype, fortran, raw = _expect(made.state, tuple)
        order = "F" if fortran else "C"
    elif made.name in _FROM_BUFFER:
        raw, dtype, shape, order = made.args
    else:
        raise _Refused("wanted an array")
    kind = _dtype(dtype)
    if not isinstance(raw, bytes | bytearray):
        raise _Refused("an array has no bytes")
    sizes = [int(_expect(size, int)) for size in _expect(shape, tuple)]
    if any(size < 0 for size in sizes) or math.prod(sizes) * kind.itemsize != len(raw):
        raise _Refused(f"an array of shape {tuple(sizes)} does not fit its {len(raw):,} bytes")
    flat = np.frombuffer(raw, dtype=kind)
    return flat.reshape(sizes, order="F" if order == "F" else "C")


def _dtype(value: Any) -> np.dtype[Any]:
    made = _expect(value, _Object)
    code, mark = made.args[0], _expect(made.state, tuple)[1]
    code, mark = (text.decode("latin-1") if isinstance(text, bytes) else text for text in (code, mark))
    if made.name != _DTYPE or code not in _INTEGERS or mark not in ("<", ">", "|"):
        raise _Refused("an array holds something else than integers")
    return np.dtype(f"{mark}{code}")
