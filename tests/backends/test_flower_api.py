"""What choral knows of Flower's wire is what the installed Flower does, and what is private of it is listed."""

import ast
import base64
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="an extra of choral's")

from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from flwr.common import constant as common
from flwr.supercore import constant
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.interceptors.http import runtime_token
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, verify_signature
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.runtime.runtime_http_client import RuntimeHttpClient
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.supernode.fleet_http_client import FleetHttpClient

from choral.backends.flower import api

ROOT = Path(__file__).parents[2]
ROOM = ROOT / "src/choral/backends/flower"
LIST = ROOT / "docs/decisions/0008-flower-carries-bytes.md"
PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}


def imported():
    """The modules of Flower that choral's own modules import."""
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name and name.partition(".")[0] == "flwr":
                    assert file.parent == ROOM, f"{file} knows Flower"
                    found.add(name)
    return found


def test_every_private_module_of_flower_is_listed_with_its_reason_and_no_other():
    listed = dict(re.findall(r"^\| `(flwr\.[\w.]+)` \|.*\| (.+) \|$", LIST.read_text(), re.M))
    assert listed.keys() == imported() - PUBLIC
    assert all(listed.values())
    assert len(listed) <= 14 and len([name for name in listed if ".proto." not in name]) <= 7


def test_names_and_numbers_are_those_of_flower():
    assert (api.PUBLIC_KEY, api.SIGNATURE) == (
        constant.FLEET_HTTP_PUBLIC_KEY_HEADER,
        constant.FLEET_HTTP_SIGNATURE_HEADER,
    )
    assert api.TIMESTAMP == common.TIMESTAMP_HEADER
    assert api.TOKEN == runtime_token.TASK_TOKEN_HEADER
    assert (api.AHEAD, api.BEHIND) == (
        common.SYSTEM_TIME_TOLERANCE,
        common.SYSTEM_TIME_TOLERANCE + common.TIMESTAMP_TOLERANCE,
    )
    assert api.PIECE == common.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE
    assert api.HEARTBEAT == common.HEARTBEAT_DEFAULT_INTERVAL
    assert (api.COMPLETED, api.FAILED) == (common.SubStatus.COMPLETED, common.SubStatus.FAILED)
    assert api.SERVER_APP == constant.TaskType.SERVER_APP and api.MEDIA == PROTOBUF_MEDIA_TYPE


def test_the_headers_of_a_component_are_those_of_flower():
    with api.Api("127.0.0.1:1", component="SuperNode", token="t") as made:
        sent = dict(made._client.headers)
    told = dict(RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata())
    assert {name: sent[name] for name in told} == told and sent[api.TOKEN] == "t"


def test_every_path_that_is_asked_is_one_of_flowers_own_clients():
    class Asked(Exception):
        pass

    def paths(client):
        def note(*, path, **_):
            raise Asked(path)

        for name in vars(client):
            if name[0].isupper():
                with pytest.raises(Asked) as noted:
                    getattr(client, name)(SimpleNamespace(_unary_unary=note, _unary_stream=note), None)
                yield noted.value.args[0]

    known = {path for client in (ControlHttpClient, RuntimeHttpClient, FleetHttpClient) for path in paths(client)}
    asked = {path for file in ROOM.glob("*.py") for path in re.findall(r'"(/v1/[a-z/-]+)"', file.read_text())}
    assert len(asked) >= 10 and asked <= known


def test_a_signature_is_one_that_flower_takes_and_flowers_is_one_that_we_take():
    key = generate_private_key(SECP384R1())
    headers = api.signed(key)
    known = base64.b64decode(headers[api.PUBLIC_KEY])
    assert known == public_key_to_bytes(key.public_key()) == api.key_bytes(key.public_key())
    signature = base64.b64decode(headers[api.SIGNATURE])
    assert verify_signature(key.public_key(), headers[api.TIMESTAMP].encode(), signature)
    assert api.has_signed(key.public_key(), headers[api.TIMESTAMP], signature)
    other = generate_private_key(SECP384R1()).public_key()
    assert not api.has_signed(other, headers[api.TIMESTAMP], signature)
