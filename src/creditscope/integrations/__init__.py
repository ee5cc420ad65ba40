"""Other people's tools: sinks that take each row of a log as it is written, and callbacks for other trainers."""

from creditscope.integrations.scalars import config, scalars
from creditscope.integrations.sink import SINKS, Sink, Sinks, build_sink, log_to

__all__ = ["SINKS", "Sink", "Sinks", "build_sink", "config", "log_to", "scalars"]
