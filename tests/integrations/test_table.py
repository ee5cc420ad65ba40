"""The table of a run's epochs, before it becomes a file."""

from cases.specs import end, epoch, probe, spec

from creditscope.integrations.table import EpochTable


def table():
    made = EpochTable(spec())
    for row in (epoch(0, accuracy=0.25), probe(0), epoch(1, accuracy=0.5)):
        made.take(row)
    return made


def test_a_line_says_who_and_when_then_the_numbers():
    made = table()
    who = {"run": spec().run_id, "method": "dfa", "seed": 42, "status": "unfinished"}
    first, second = made.lines()
    hidden = {f"hidden/state_{place}": 9.0 for place in range(5)}
    participation = {f"participation/state_{place}": 1.5 for place in range(5)}
    assert first == {**who, "epoch": 0, "test_accuracy": 0.25, **hidden, **participation}
    assert second == {**who, "epoch": 1, "test_accuracy": 0.5, **hidden}
    assert made.names == ("test_accuracy", *hidden, *participation)


def test_the_end_is_in_every_line():
    made = table()
    made.take(end(1))
    assert [line["status"] for line in made.lines()] == ["finished", "finished"]
    assert "end/finished" not in made.lines()[0]
    assert made.lines()[1]["end/finished"] == 1.0


def test_an_epoch_row_replaces_its_epoch_and_a_probe_row_joins_it():
    for row, kept in ((epoch(1), [0]), (probe(1), [0, 1]), (epoch(0), []), (epoch(2), [0, 1])):
        made = table()
        made.truncate(row)
        assert sorted(made.epochs) == kept
