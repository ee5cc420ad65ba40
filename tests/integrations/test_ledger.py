"""Which run is which after a resume, and which rows are already there."""

import pytest
from cases.specs import end, epoch, probe

from creditscope.integrations.ledger import Entry, Ledger

ROWS = [epoch(0), probe(0), epoch(1), probe(1), end(1)]


@pytest.mark.parametrize("last", range(len(ROWS)))
def test_an_entry_has_the_rows_up_to_its_last(last):
    entry = Entry("abc", ROWS[last].epoch, ROWS[last].kind)
    assert [entry.has(row) for row in ROWS] == [place <= last for place in range(len(ROWS))]
    assert not any(Entry("abc").has(row) for row in ROWS)


def test_a_resumed_run_is_found_and_one_that_begins_is_new(tmp_path):
    ledger = Ledger(tmp_path, "mlflow")
    assert ledger.find("dfa-s1", epoch(3)) is None
    ledger.note("dfa-s1", Entry("abc", 3, "probe"))
    assert Ledger(tmp_path, "mlflow").find("dfa-s1", epoch(3)) == Entry("abc", 3, "probe")
    assert ledger.find("dfa-s1", epoch(0)) is None
    assert ledger.find("dfa-s2", epoch(3)) is None
    assert Ledger(tmp_path, "wandb").find("dfa-s1", epoch(3)) is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"name": 1}'])
def test_a_torn_entry_is_as_good_as_none(tmp_path, text):
    ledger = Ledger(tmp_path, "mlflow")
    ledger.note("dfa-s1", Entry("abc", 3, "probe"))
    (tmp_path / ".log-to" / "mlflow" / "dfa-s1").write_text(text)
    assert ledger.find("dfa-s1", epoch(3)) is None
