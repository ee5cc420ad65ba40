"""The published schema of the rows is that of the code."""

import json
import runpy

from cases.specs import end, epoch, header, probe

from creditscope.records.log import _encode
from creditscope.records.rows import SCHEMA_VERSION
from creditscope.records.schema import SCHEMA_FILE, row_schema, schema_text


def test_the_committed_schema_is_up_to_date():
    wanted = "run python -m creditscope.records.schema and commit the result"
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), wanted


def test_running_the_module_writes_the_file(tmp_path, monkeypatch):
    written = {}
    monkeypatch.setattr(
        "creditscope.records.files.write_atomic", lambda path, data: written.update({path.name: data.decode()})
    )
    runpy.run_path(str(SCHEMA_FILE.with_name("schema.py")), run_name="__main__")
    assert written == {"schema.json": schema_text()}


def test_every_key_of_every_row_is_in_the_schema():
    schema = row_schema()
    assert schema["title"].endswith(f"version {SCHEMA_VERSION}")
    models = {kind: ref.rpartition("/")[2] for kind, ref in schema["discriminator"]["mapping"].items()}
    assert set(models) == {"header", "epoch", "probe", "end"}
    for row in (header(), epoch(0), probe(0), end(0)):
        written = json.loads(_encode(row))
        definition = schema["$defs"][models[written["kind"]]]
        assert set(written) <= set(definition["properties"])
        assert set(definition.get("required", ())) <= set(written)
        assert definition["additionalProperties"] is False
