"""Where a record came from: versions and hardware, never a host name, user name or absolute path."""

import platform
from datetime import UTC, datetime
from importlib import metadata

# Under this name a log says which of the user's settings were switched off while probes measured.
OFF = "off_in_probes"


def provenance(device: str = "cpu", device_name: str | None = None) -> dict[str, str]:
    """Versions and device of this process.

    Args:
        device: ``cpu`` or ``cuda``.
        device_name: The accelerator's name, if there is one.
    """
    facts = {
        "creditscope": version("creditscope"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device,
    }
    facts |= {package: version(package) for package in ("torch", "numpy")}
    if device_name:
        facts["device_name"] = device_name
    return facts


def version(package: str) -> str:
    """Installed version of a package, or ``unknown`` when it runs from a source tree."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def now() -> str:
    """The time, UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
