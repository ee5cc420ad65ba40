"""Text: windows, the split by position, what is refused, and the text that is bundled."""

import lzma
from collections import Counter

import numpy as np
import pytest
import torch

from creditscope.data import load_data
from creditscope.data.dataset import content_hash
from creditscope.data.king_james import FILE, HASH_TEST, HASH_TRAIN, read_king_james
from creditscope.data.text import WINDOW, text_dataset, windows
from creditscope.errors import BadFile, BadInput

STORY = "the cat sat on the mat and the dog ran. " * 60


def test_windows_by_hand(monkeypatch):
    monkeypatch.setattr("creditscope.data.text.WINDOW", 3)
    x, y = windows("abcabcabca", ["a", "b", "c"])
    assert x.tolist() == [[0, 1, 2]] * 3
    assert y.tolist() == [[1, 2, 0]] * 3
    x, y = windows("aébbéa", ["a", "b", "é"])
    assert (x.tolist(), y.tolist()) == ([[0, 2, 1]], [[2, 1, 1]])


def test_the_last_tenth_is_the_test_split_and_every_target_follows_its_character():
    data = text_dataset("story", STORY, "story.txt")
    known = sorted(set(STORY))
    cut = len(STORY) * 9 // 10
    for x, y, part in ((data.x_train, data.y_train, STORY[:cut]), (data.x_test, data.y_test, STORY[cut:])):
        assert x.shape == y.shape == ((len(part) - 1) // WINDOW, WINDOW)
        read = "".join(known[i] for i in x.flatten())
        assert read == part[: len(read)]
        assert "".join(known[i] for i in y.flatten()) == part[1 : len(read) + 1]
    assert (data.x_train.dtype, data.y_train.dtype, data.classes) == (torch.int64, torch.int64, len(known))
    assert (data.spec.shape, data.spec.tokens, data.spec.unequal) == ((WINDOW,), WINDOW, False)


def test_chance_is_the_most_frequent_character_and_the_unigram_of_the_training_split():
    data = text_dataset("story", STORY, "story.txt")
    train, test = (Counter(y.flatten().tolist()) for y in (data.y_train, data.y_test))
    assert dict(enumerate(data.spec.class_counts)) == {c: test[c] for c in range(data.classes)}
    nats = -sum(n * np.log(train[c] / train.total()) for c, n in test.items()) / test.total()
    assert data.spec.unigram == pytest.approx(nats, rel=1e-12)


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "story.txt"
    path.write_text(STORY.replace("dog", "çog"), encoding="utf-8")
    data = load_data(str(path))
    assert data.name == "story"
    assert data.classes == len(set(STORY)) + 1


REFUSED = {
    "no file": (None, "cannot be read"),
    "no text": (b"caf\xe9 " * 500, "line 1 holds the byte 0xe9, which is no UTF-8; save the text as UTF-8"),
    "unknown": (
        ("and the\n" + STORY + "Zat").encode(),
        "line 2 holds 'Z', which the first nine tenths never do: nothing can learn it; take it out, or put the text in "
        "another order",
    ),
    "several": ((STORY + "XYZ").encode(), "take its 3 such characters out"),
    "short": (b"abc" * 20, "its first nine tenths are 54 characters, wanted more than 64, one window; give more text"),
    "short test": (b"abc" * 200, "its last tenth are 60 characters"),
    "one letter": (b"a" * 2000, "holds 1 different characters, wanted 2 to 512"),
    "alphabet": ("".join(map(chr, range(0x4E00, 0x5400))).encode(), "different characters, wanted 2 to 512"),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=list(REFUSED))
def test_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "mine.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((BadInput, BadFile)) as caught:
        load_data(str(path))
    assert message in str(caught.value)
    assert "mine.txt" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("creditscope.data.text.MAX_FILE", 100)
    (tmp_path / "mine.txt").write_text(STORY)
    with pytest.raises(BadFile, match="wanted at most 100 bytes"):
        load_data(str(tmp_path / "mine.txt"))


def test_the_bundled_text():
    data = load_data("king-james")
    assert (data.spec.n_train, data.spec.n_test, data.classes) == (58_188, 6_465, 63)
    assert (data.spec.hash_train, data.spec.hash_test) == (HASH_TRAIN, HASH_TEST)
    assert content_hash(data.x_test.numpy(), data.y_test.numpy()) == HASH_TEST
    text = lzma.decompress(FILE.read_bytes()).decode("ascii")
    assert text.startswith("In the beginning God created the heaven and the earth.\n")
    assert text.count("\n") == 31_102
    assert sum(path.stat().st_size for path in FILE.parent.iterdir()) < 2_000_000
    assert "copyright has expired" in (FILE.parent / "README.md").read_text()
    assert data.spec.unigram == pytest.approx(3.0237387, abs=1e-6)


@pytest.mark.parametrize("how", ["cut", "changed", "bomb", "other"])
def test_a_damaged_copy_is_noticed(tmp_path, how, monkeypatch):
    data = FILE.read_bytes()
    if how == "bomb":
        monkeypatch.setattr("creditscope.data.king_james._MAX_TEXT", 10_000)
    changed = {
        "cut": data[: len(data) // 2],
        "changed": data[:5000] + b"\0\0" + data[5002:],
        "bomb": data,
        "other": lzma.compress(STORY.encode()),
    }
    (tmp_path / "text.txt.xz").write_bytes(changed[how])
    with pytest.raises(BadFile, match=r"king-james: the bundled text is damaged .*; reinstall creditscope"):
        read_king_james(tmp_path / "text.txt.xz")
