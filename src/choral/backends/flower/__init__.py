"""Flower, in the only room that knows it: it carries bytes between machines, and never learns what they mean.

`server` and `device` are what a Flower app names as its components. The ServerApp hands a transport to the conductor
that the run's configuration names; the ClientApp hands every message to the device's own process and back.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from choral.core.errors import ConfigError

try:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ModuleNotFoundError as error:
    raise ConfigError("CH106", "a deployment runs on Flower.", fix="pip install 'choral[flower]'") from error

from choral.backends.flower.grid import GridTransport
from choral.backends.flower.parcels import relayed

server = ServerApp()
device = ClientApp()


def conductor_named(name: str) -> Any:  # noqa: ANN401 - whatever room started the process knows what it has named
    """The function that "module:function" names, which runs a study over a transport; the room above says which."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


@server.main()
def _conduct(grid: Grid, context: Context) -> None:
    """Run the study of the folder that the run's configuration names."""
    conductor_named(str(context.run_config["conductor"]))(str(context.run_config["folder"]), GridTransport(grid))


@device.query()
def _relay(message: Message, context: Context) -> Message:
    """The reply of the device's process behind its door; `{}` in the path of doors is the place in a simulation."""
    place = context.node_config.get("partition-id", "")
    return relayed(message, Path(str(context.run_config["doors"]).replace("{}", str(place))))
