"""Flower, in the only room that knows it: it carries bytes between machines, and never learns what they mean.

`server` and `device` are what a Flower app names as its components. The ServerApp hands a transport to the conductor
that the run's configuration names; the ClientApp hands every message to the device's own process and back.
"""

from pathlib import Path

from choral.core.errors import ConfigError

try:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ModuleNotFoundError as error:
    raise ConfigError("CH106", "a deployment runs on Flower.", fix="pip install 'choral[flower]'") from error

server = ServerApp()
device = ClientApp()


@server.main()
def _conduct(grid: Grid, context: Context) -> None:
    """Run the study of the folder that the run's configuration names."""
    from choral.backends.flower.grid import GridTransport, conductor_named  # a site's process needs neither

    conductor_named(str(context.run_config["conductor"]))(str(context.run_config["folder"]), GridTransport(grid))


@device.query()
def _relay(message: Message, context: Context) -> Message:
    """The reply of the device's process behind its door; `{}` in the path of doors is the place in a simulation."""
    from choral.backends.flower.parcels import relayed

    place = context.node_config.get("partition-id", "")
    return relayed(message, Path(str(context.run_config["doors"]).replace("{}", str(place))))
