r"""Everything that choral refuses, as one tree; each error says what, where, why and the way out.

    ChoralError
    ├── InputError           exit 2: what was given can't be used; nothing was started
    │   ├── ConfigError      CH1xx  choral.toml and command-line flags
    │   ├── PlanError        CH2xx  numbers that do not go together, budgets out of reach
    │   └── TableError       CH3xx  the data's form
    └── RunError             exit 1: a run that was started has ended
        ├── LedgerError      CH4xx  a device's budget says no, or its ledger can't be trusted
        ├── SumError         CH5xx  a round's sum can't be opened or doesn't fit
        ├── TrustError       CH6xx  keys, plans or messages are not what was agreed
        ├── TrainingError    CH7xx  the numbers went wrong while training
        ├── StorageError     CH8xx  files and folders of a run
        └── DeploymentError  CH9xx  processes and connections between machines

No error carries a data value: names of files, columns, devices and row numbers only. No error carries a character that
moves a cursor or is not seen: whatever a file holds, it is written out here, as in \x1b.
"""

from typing import ClassVar

from choral.core.printable import escaped

CODES: dict[str, str] = {
    "CH100": "a configuration file is not valid TOML",
    "CH101": "a key, table or flag is not known",
    "CH102": "a setting's value is out of its range or of the wrong type",
    "CH103": "a required setting is missing",
    "CH104": "two settings contradict each other",
    "CH105": "a configuration file can't be read",
    "CH106": "an optional package is needed for this",
    "CH107": "a PyTorch module can't be trained row by row",
    "CH108": "images or layers do not suit a convolutional network",
    "CH110": "a run's model is code, and nobody has said which",
    "CH111": "a run keeps no test rows to judge by",
    "CH112": "an optional package is too old to be safe",
    "CH200": "a number of the plan is out of its range",
    "CH201": "the budget can't be reached with this plan",
    "CH202": "local steps do not fill whole passes over the data",
    "CH203": "a seed is set in a deployment",
    "CH204": "the numbers of the plan do not go together",
    "CH205": "the secure sum's threshold is below the safe bound",
    "CH206": "a device has more rows than a question has room for",
    "CH300": "a data file can't be read",
    "CH301": "cells are empty where no constant for missing values is declared",
    "CH302": "a column is not there",
    "CH303": "a cell is not of its column's declared kind",
    "CH304": "a column has no declared range or levels",
    "CH305": "a device has too few rows",
    "CH306": "a row has more or fewer cells than the header",
    "CH307": "a file is not text in the encoding that it is read in",
    "CH308": "a file or table has no rows",
    "CH309": "two devices have the same name",
    "CH310": "the label has only one value",
    "CH311": "a cell holds a level that was not declared",
    "CH312": "arrays have the wrong shape or type",
    "CH313": "a table is not the one that was approved",
    "CH314": "another home on this machine has approved the same table",
    "CH315": "a column looks like an identifier, and nobody has declared it",
    "CH316": "a cell is no date, or dates do not show whether the day or the month comes first",
    "CH317": "a file of arrays or an image can't be read",
    "CH318": "rows have another shape than is declared",
    "CH319": "an image lies outside of the folder that was named",
    "CH320": "a question has too few rows for an honest answer",
    "CH321": "a column is not declared for questions",
    "CH322": "a filter or cut of a question was not declared",
    "CH323": "a quantile is nearer to the end than the noise",
    "CH324": "an encoder is not the one that was agreed on",
    "CH325": "an encoder can't be run",
    "CH326": "rows and encoder, or encoder and embeddings, do not fit",
    "CH327": "an encoder gives a number that is not finite",
    "CH328": "a table has several faults",
    "CH329": "a file is in the format of another program",
    "CH333": "a question is of another version of choral",
    "CH338": "an encoder's file has parts that programs could read differently",
    "CH339": "an encoder has an operator that is not on the list",
    "CH340": "an encoder keeps numbers outside of its file",
    "CH400": "a ledger file is damaged",
    "CH401": "a device has spent its budget",
    "CH402": "a ledger is older than its last receipt",
    "CH403": "a ledger was written by a newer version",
    "CH404": "a ledger is in use by another process",
    "CH405": "a round's attempt was charged already",
    "CH406": "a ledger has another limit than the one given",
    "CH407": "the questions that a study may ask are used up",
    "CH408": "a device has spent its budget with the secure sum",
    "CH409": "a study asks for more uploads than it has reserved",
    "CH413": "a limit has no room for attempts that fail",
    "CH500": "a vector does not fit the round's shape",
    "CH501": "an update does not fit the modulus",
    "CH502": "a sum does not fit the modulus",
    "CH503": "too few devices answered to open the sum",
    "CH504": "an opened sum failed its checks",
    "CH505": "the answers to the probes do not belong to the opened sum",
    "CH600": "a message is malformed",
    "CH601": "a device's key has changed",
    "CH602": "protocol versions differ",
    "CH603": "the server's plan is weaker than this device's policy",
    "CH604": "devices did not receive the same round",
    "CH605": "a device refuses a message that would break the protocol",
    "CH606": "a signature, share, key or envelope does not verify",
    "CH607": "a round has used up its charged attempts",
    "CH608": "a question is not in this device's catalogue, or not approved",
    "CH609": "as many turns as were approved have been opened",
    "CH610": "a study's keys are weaker than its devices offer, or than this site allows",
    "CH611": "the installed cryptography has no ML-KEM-768",
    "CH612": "there are no keys for this turn",
    "CH613": "a device offers a key that is none",
    "CH614": "a study was not compared, or a number to compare it by is none",
    "CH615": "a path does not lead to the root of its list",
    "CH616": "a server shows two roots for one turn",
    "CH617": "what would be recorded is no longer what was shown",
    "CH618": "a home, or a passphrase, is open to other users",
    "CH622": "a frame is not signed by the study's server for this device",
    "CH623": "a frame of the server came again, or late",
    "CH624": "an answer is not signed by its device",
    "CH625": "a run is ended early without a reason",
    "CH700": "training diverged",
    "CH701": "a model's output or loss has the wrong shape",
    "CH702": "no such accelerator",
    "CH703": "a record would be used more often than its device is charged for",
    "CH800": "a run folder exists already",
    "CH801": "a file or folder can't be written",
    "CH802": "a run folder is incomplete or changed",
    "CH803": "a vault can't be opened",
    "CH804": "what was given is no run's folder",
    "CH900": "a process of the deployment can't be started or has ended",
    "CH901": "a device's own process can't be reached",
    "CH902": "a device's own process failed on a request",
    "CH903": "devices of the study are not connected",
    "CH904": "a site can't connect to its server",
    "CH905": "a site's clock and its server's differ too much",
    "CH906": "a certificate is not valid at this time",
    "CH907": "a server would run as root",
    "CH908": "a server can't run on this system",
}


class ChoralError(Exception):
    """A refusal with its code, what is wrong, where, why, and the exact way out."""

    exit_status: ClassVar[int] = 1

    def __init__(self, code: str, what: str, *, where: str = "", why: str = "", fix: str = "") -> None:
        if code not in CODES:
            raise KeyError(f"{code} is not listed in choral.core.errors.CODES")
        self.code, self.what, self.where, self.why, self.fix = code, *map(escaped, (what, where, why, fix))
        super().__init__(str(self))

    def __str__(self) -> str:
        """Code, place, what, why and fix on one line.

        >>> print(ConfigError("CH101", 'unknown key "epsilom" in [privacy].', where="choral.toml:7",
        ...                   fix='Did you mean "epsilon"?'))
        CH101 choral.toml:7 unknown key "epsilom" in [privacy]. Did you mean "epsilon"?
        """
        return " ".join(part for part in (self.code, self.where, self.what, self.why, self.fix) if part)

    def as_dict(self) -> dict[str, str]:
        """The same for machines.

        >>> PlanError("CH200", "rounds = 0.", fix="Use at least 1.").as_dict()["fix"]
        'Use at least 1.'
        """
        return {"code": self.code, "where": self.where, "what": self.what, "why": self.why, "fix": self.fix}


class InputError(ChoralError):
    """What was given can't be used; nothing was started."""

    exit_status = 2


class ConfigError(InputError):
    """A configuration file or a flag is wrong (CH1xx)."""


class PlanError(InputError):
    """The numbers of a plan can't hold together (CH2xx)."""


class TableError(InputError):
    """A table is not of the declared form (CH3xx)."""


class RunError(ChoralError):
    """A run that was started has ended."""


class LedgerError(RunError):
    """A device's budget or its ledger says no (CH4xx)."""


class SumError(RunError):
    """A round ends without a sum (CH5xx)."""


class NotReadyError(SumError):
    """Too few devices are ready for a turn: nothing was sent, and nobody is charged."""


class TrustError(RunError):
    """Somebody is not, or does not send, what was agreed (CH6xx)."""


class TrainingError(RunError):
    """The numbers went wrong while training (CH7xx)."""


class StorageError(RunError):
    """Files of a run are missing, changed or can't be written (CH8xx)."""


class DeploymentError(RunError):
    """A process or a connection of a deployment is not there (CH9xx)."""
