"""systemd units of the two long-lived processes of a deployment: what they may touch, and where they are put."""

import ipaddress
import os
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from choral.core.errors import ConfigError, StorageError
from choral.run.folder import write_whole

SYSTEM_UNITS = Path("/etc/systemd/system")
_PRIVILEGED = 1024  # ports below it need a capability


@dataclass(frozen=True, kw_only=True)
class Service:
    """A command that systemd is to keep running: by the owner of its folder, which is all that it may write to."""

    name: str
    description: str
    command: tuple[str, ...]
    folder: Path
    port: int | None = None  # that it listens at
    only_peer: str | None = None  # the only other host that it talks to

    @property
    def file(self) -> str:
        """The unit's name, with whatever systemd does not take there left out.

        >>> Service(name="choral-device-St. Mary's", description="", command=(), folder=Path("/x")).file
        'choral-device-St.-Mary-s.service'
        """
        return re.sub(r"[^A-Za-z0-9_.-]+", "-", self.name) + ".service"

    def unit(self, *, user: bool = False) -> str:
        """The text of the unit: for the system, or for a user's own service manager, which can hold it less tightly."""
        folder = self.folder.resolve()
        # What is left out on purpose: what forbids memory that is writable and executable, since training is compiled,
        # and what hides devices, since one may be an accelerator. A user's own manager drops no capabilities.
        text = (resources.files("choral.deploy") / f"{'user' if user else 'system'}.service").read_text(
            encoding="utf-8"
        )
        return Template(text).substitute(
            description=_word(self.description, quote=False),
            command=" ".join(_word(word).replace("$", "$$") for word in self.command),
            cache=_word(f"CHORAL_CACHE={folder}/cache"),
            owner=_owner(folder),
            folder=_word(str(folder)),
            capability="CAP_NET_BIND_SERVICE" if self.port is not None and self.port < _PRIVILEGED else "",
            peers=self._peers(),
        )

    def _peers(self) -> str:
        """Nobody else on the network, where the only peer is known by its number: systemd looks up no names."""
        try:
            number = ipaddress.ip_address(self.only_peer or "")
        except ValueError:
            return ""
        return f"IPAddressDeny=any\nIPAddressAllow=localhost {number}\n"

    def install(self, *, user: bool = False) -> Path:
        """It is where the unit now lies, written at once; one that says something else is left alone (CH800)."""
        path, text = (_user_units() if user else SYSTEM_UNITS) / self.file, self.unit(user=user)
        fix = "Check the folder." if user else "Do it as root, or with --user for a service of your user."
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            there = path.read_text(encoding="utf-8") if path.exists() else None
        except OSError as error:
            raise StorageError("CH801", f"can't be written: {error.strerror}.", where=str(path), fix=fix) from None
        if there is None:
            write_whole(path, text.encode(), mode=0o644, fix=fix)
        elif there != text:
            raise StorageError(
                "CH800",
                "is there already and says something else.",
                where=str(path),
                fix="Compare it with what --systemd prints; take it away and install again.",
            )
        return path

    def start_lines(self, *, user: bool = False) -> tuple[str, str]:
        """It is what to type next, to have it run now and after every start of the machine.

        >>> Service(name="a", description="", command=(), folder=Path("/x")).start_lines(user=True)
        ('systemctl --user daemon-reload', 'systemctl --user enable --now a.service')
        """
        systemctl = "systemctl --user" if user else "systemctl"
        return f"{systemctl} daemon-reload", f"{systemctl} enable --now {self.file}"


def _user_units() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "systemd" / "user"


def _owner(folder: Path) -> str:
    number = folder.stat().st_uid
    try:
        import pwd  # Windows has none, and no systemd either

        return pwd.getpwuid(number).pw_name
    except (KeyError, ModuleNotFoundError):
        return str(number)


def _word(text: str, *, quote: bool = True) -> str:
    """A word of a unit: quoted where it must be, and not taken for one of systemd's specifiers.

    >>> _word("/srv/100% private"), _word("plain")
    ('"/srv/100%% private"', 'plain')
    """
    if re.search(r'[\x00-\x1f\x7f"\\]', text):
        raise ConfigError(
            "CH102",
            f"{text!r} can't be used in a systemd unit.",
            fix="Use a path without quotation marks and backslashes.",
        )
    text = text.replace("%", "%%")
    return f'"{text}"' if quote and re.search(r"[^\w@%+=:,./$-]", text) else text
