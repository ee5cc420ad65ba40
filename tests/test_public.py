"""The public names as a type checker sees them: real types, no ``Any``, also in a user's script."""

import re
import subprocess
import sys
from pathlib import Path

import creditscope as cs

ROOT = Path(__file__).parents[1]
SCRIPT = '''
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

import creditscope as cs


@dataclass(frozen=True)
class Uniform(cs.BlockRule):
    """A rule of one's own."""

    name = "uniform"
    formula = "c_{l+1} = e·B_l"
    paper = "unpublished"
    injection = "e·B_l at the output of block l"
    sketch = cs.Sketch(text="straight to each block", route="direct")

    def feedback_inits(self, task: cs.Task, params: Mapping[str, Tensor]) -> dict[str, cs.FeedbackInit]:
        return {f"B.{at}": cs.FeedbackInit((task.outputs, shape[-1]), 0.3) for at, shape in enumerate(task.shapes)}

    def signals(
        self,
        task: cs.Task,
        params: Mapping[str, Tensor],
        state: dict[str, Tensor],
        error: Tensor,
        top: Tensor,
        batch: cs.Batch,
    ) -> tuple[Tensor, ...]:
        return tuple(error @ state[f"B.{at}"] for at in range(len(task.shapes)))


class Still(cs.Check):
    """A check of one's own."""

    name = "still"
    threshold = 0.5

    def judge(self, cell: cs.Cell) -> cs.Outcome:
        return self.outcome(cs.Evidence.point(1.0, cs.Grade.EXACT), "always")


runs: list[cs.RunSpec] = cs.specs(["uniform", "bp@frozen"], seeds=[1], rules=[Uniform])
logs: list[cs.RunLog] = cs.train(runs, "runs", rules=[Uniform], resume=True)
judged: cs.Audit = cs.audit(logs, protocol=cs.protocol_named("standard").with_checks(advisory=[Still()]))
text: str = judged.to_text()
page: Path = cs.write_report(logs, Path("report.html"))
drawn: bytes = cs.draw_figure("hero", logs).encode(".pdf")
version: str = cs.__version__
'''


def checked(path, text):
    path.write_text(text, encoding="utf-8")
    command = (sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", "", str(path))
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


def test_every_public_name_has_a_type(tmp_path):
    text = "import creditscope as cs\n" + "".join(f"reveal_type(cs.{name})\n" for name in cs.__all__)
    done = checked(tmp_path / "names.py", text)
    revealed = re.findall(r'note: Revealed type is "(.*)"$', done.stdout, flags=re.MULTILINE)
    assert len(revealed) == len(cs.__all__) > 30, done.stdout + done.stderr
    assert [kind for kind in revealed if kind == "Any"] == []


def test_a_users_script_is_sound_under_strict(tmp_path):
    done = checked(tmp_path / "script.py", SCRIPT)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_every_public_name_is_there():
    assert all(getattr(cs, name) is not None for name in cs.__all__)
    assert dir(cs) == sorted(cs.__all__)
