"""The JSON Schema of a log's rows, kept next to this file as ``schema.json`` for readers in other languages.

``python -m creditscope.records.schema`` writes it again after a change of the rows.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from creditscope.records.files import write_atomic
from creditscope.records.rows import SCHEMA_VERSION, Row

SCHEMA_FILE = Path(__file__).with_name("schema.json")


def row_schema() -> dict[str, Any]:
    """The schema of one line of a log: any of the four kinds of row."""
    adapter: TypeAdapter[Any] = TypeAdapter(Row)
    schema = adapter.json_schema(mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"One row of a creditscope log, version {SCHEMA_VERSION}",
        **schema,
    }


def schema_text() -> str:
    """The content of ``schema.json``."""
    return json.dumps(row_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    write_atomic(SCHEMA_FILE, schema_text().encode())
