"""Train backprop, direct feedback alignment and its frozen twin on real images, then ask which claim stands."""

import sys
import tempfile

import creditscope as cs


def main() -> None:
    runs = cs.specs(
        ["bp", "bp@frozen", "dfa-rms", "dfa-rms@frozen"],
        preset="demo",
        seeds=(1, 2),
        changes={"width": 32, "depth": 3, "epochs": 2, "probe.n": 256},
    )
    with tempfile.TemporaryDirectory() as folder:
        logs = cs.train(runs, sys.argv[1] if len(sys.argv) > 1 else folder, device="cpu")
    audit = cs.audit(logs)
    print(audit.to_text())
    for cell in audit.claims:
        print(f"{cell.cell.method}: {cell.verdict.kind}")


if __name__ == "__main__":
    main()
