"""Single images in a log, against bytes written by hand."""

import numpy as np
import pytest

from creditscope.protocol.inference import read_counts
from creditscope.records.images import image_fields, pack_bits, sequence_fields


def test_bits_are_big_endian_and_the_last_byte_is_filled_up():
    assert pack_bits(np.array([1, 0, 1, 0, 0, 0, 0, 1, 1])) == "a180"


def test_labels_are_two_bytes_and_only_where_classes_are_unequal():
    correct, labels = np.array([True, False, True]), np.array([0, 258, 3])
    assert image_fields(correct, labels, unequal=True) == {"correct": "a0", "n_test": 3, "labels": "000001020003"}
    assert image_fields(correct, labels, unequal=False) == {"correct": "a0", "n_test": 3}
    assert "labels" not in image_fields(correct, np.array([0, 1, 2**16]), unequal=True), "two bytes do not hold it"


def test_of_text_the_right_tokens_of_each_sequence_are_counted():
    fields = sequence_fields(np.array([3, 0, 258]))
    assert fields == {"right": "000300000102", "n_test": 3}
    assert read_counts(fields["right"], 3).tolist() == [3.0, 0.0, 258.0]
    with pytest.raises(ValueError, match="wanted the right tokens of 4 sequences, got 3"):
        read_counts(fields["right"], 4)
