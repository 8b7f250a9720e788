"""Names that travel between organisations: people compare them, so each must be distinguishable from every other."""

from choral.core.errors import ConfigError
from choral.core.printable import LONGEST_NAME, fault_of_name


def require_name(what: str, name: str) -> None:
    """Nothing, or CH102 for a text that is no name that people can tell from others.

    >>> require_name("the study's name", "hearts")
    """
    if fault := fault_of_name(name):
        raise no_name(what, fault)


def require_device_name(name: str) -> None:
    """The same for a device, in whose name a comma would make one device look like two.

    >>> require_device_name("hospital-a")
    """
    require_name("a device's name", name)
    if "," in name:
        raise no_name("a device's name", "has a comma")


def no_name(what: str, fault: str) -> ConfigError:
    """The refusal of a name; the name itself is not repeated."""
    return ConfigError(
        "CH102", f"{what} {fault}.", fix=f"Use 1 to {LONGEST_NAME} printable characters, letters of one script."
    )
