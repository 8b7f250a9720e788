"""The vault: durable before it returns, whole or not at all, and closed to everybody without the passphrase."""

import hashlib
import os
import random
import stat

import msgspec
import pytest

from choral.core import vault as vault_module
from choral.core.errors import ConfigError, StorageError, TrustError
from choral.core.messages import Turn
from choral.core.vault import FileStore, Memory, Vault
from choral.run.folder import MemoryStore

SECRET = b"sixty-four bytes that nobody should ever see on a disk or screen"
MEMORY = Memory(id="site-a", secret=SECRET)


def closed(store, passphrase=None):
    with pytest.raises(StorageError) as refusal:
        Vault.open(store, passphrase)
    assert refusal.value.code == "CH803"
    return str(refusal.value)


@pytest.mark.parametrize("passphrase", [None, "correct horse"])
def test_what_is_changed_is_there_when_the_vault_is_opened_again(tmp_path, passphrase):
    store = FileStore(tmp_path / "device" / "vault")
    vault = Vault.create(store, MEMORY, passphrase)
    vault.change(turn=Turn(3, 1), receipt=(7, "ab"), pairs={"site-b": b"pair"})
    memory = Vault.open(store, passphrase).memory
    assert memory == Memory(id="site-a", secret=SECRET, turn=Turn(3, 1), receipt=(7, "ab"), pairs={"site-b": b"pair"})


def test_file_and_folder_are_for_the_owner_only(tmp_path):
    path = tmp_path / "device" / "vault"
    Vault.create(FileStore(path), MEMORY).change(turn=Turn(1, 0))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == ["vault"]


def test_a_sealed_vault_shows_no_secret_and_opens_only_with_its_passphrase(tmp_path):
    store = FileStore(tmp_path / "vault")
    Vault.create(store, MEMORY, "correct horse")
    assert SECRET not in store.read() and b"site-a" not in store.read()
    assert "sealed" in closed(store)
    assert "wrong passphrase" in closed(store, "battery staple")
    assert Vault.open(store, "correct horse").memory == MEMORY


def test_two_writes_of_a_sealed_vault_never_share_a_nonce():
    vault = Vault.create(MemoryStore(), MEMORY, "correct horse")
    nonces = set()
    for attempt in range(20):
        vault.change(turn=Turn(0, attempt))
        nonces.add(vault.store.read()[23:35])
    assert len(nonces) == 20


def test_no_repr_shows_a_secret():
    vault = Vault.create(MemoryStore(), Memory(id="site-a", secret=SECRET, pairs={"site-b": b"pair secret"}))
    for thing in (vault, vault.memory, vault.store):
        assert "secret" not in repr(thing) and "sixty" not in repr(thing)


@pytest.mark.parametrize("passphrase", [None, "correct horse"])
def test_any_changed_bit_and_any_cut_is_noticed(monkeypatch, passphrase):
    monkeypatch.setattr(vault_module, "SCRYPT", vault_module.SCRYPT | {"n": 2})  # one derivation for each try
    store = MemoryStore()
    Vault.create(store, MEMORY, passphrase)
    data = store.data
    for place in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[place] ^= 1 << bit
            closed(MemoryStore(bytes(changed)), passphrase)
        closed(MemoryStore(data[:place]), passphrase)
    closed(MemoryStore(data + b"\0"), passphrase)


def test_mutated_vaults_are_survived():
    store = MemoryStore()
    Vault.create(store, MEMORY)
    dice = random.Random(0)
    for _ in range(3000):
        data = bytearray(store.data)
        for _ in range(dice.randint(1, 5)):
            place = dice.randrange(len(data))
            data[place : place + dice.randint(0, 3)] = dice.randbytes(dice.randint(0, 4))
        if data != store.data:
            closed(MemoryStore(bytes(data)))


def test_a_missing_or_newer_vault_is_named_as_such(tmp_path):
    assert "No such file" in closed(FileStore(tmp_path / "nothing"))
    store = MemoryStore()
    Vault.create(store, MEMORY)
    assert "it has version 8, this is 7" in closed(MemoryStore(store.data[:4] + b"\x08\x00" + store.data[6:]))


def test_a_vault_of_version_1_is_read_and_its_last_round_counts_as_charged_once():
    # Written by the version before attempts were counted: id "a", 64 bytes of keys, turn (3, 1); no passphrase.
    memory = {
        "id": "a", "secret": bytes(64), "pairs": {}, "roster": None, "terms": None, "turn": [3, 1], "receipt": None,
    }  # fmt: skip
    body, header = msgspec.msgpack.encode(memory), b"chrv" + b"\x01\x00" + bytes(29)
    vault = Vault.open(MemoryStore(header + hashlib.sha256(header + body).digest() + body))
    assert (vault.memory.turn, vault.memory.attempts) == (Turn(3, 1), 1)
    vault.change(attempts=2)
    assert vault.store.data[4:6] == b"\x07\x00" and Vault.open(vault.store).memory.attempts == 2


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_vault_and_says_so(tmp_path, monkeypatch, step):
    store = FileStore(tmp_path / "vault")
    vault = Vault.create(store, MEMORY)
    vault.change(turn=Turn(1, 0))

    def fails(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, step, fails)
        with pytest.raises(StorageError) as refusal:
            vault.change(turn=Turn(2, 0))
    assert refusal.value.code == "CH801" and "No space left" in str(refusal.value)
    assert vault.memory.turn == Vault.open(store).memory.turn == Turn(1, 0)
    assert os.listdir(tmp_path) == ["vault"]


def test_the_new_bytes_are_on_the_disk_before_the_name_and_the_folder_after_it(tmp_path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, real=real: (order.append(name), real(*args))[1])
    Vault.create(FileStore(tmp_path / "vault"), MEMORY)
    assert order == ["fsync", "replace", "fsync"]


def test_a_vault_is_never_made_over_another(tmp_path):
    for store in (MemoryStore(), FileStore(tmp_path / "vault")):
        Vault.create(store, MEMORY)
        data = store.read()
        with pytest.raises(StorageError) as refusal:
            Vault.create(store, MEMORY)
        assert refusal.value.code == "CH801" and store.read() == data


def test_what_a_person_approves_replaces_what_was_pinned_and_what_belonged_to_it():
    vault = Vault.create(MemoryStore(), MEMORY)
    vault.pin(roster=b"r" * 32, terms=b"t" * 32)
    vault.change(turn=Turn(9, 0), pairs={"site-b": b"pair"}, receipt=(9, "ab"))
    vault.approve(roster=b"r" * 32, terms=b"t" * 32)
    assert vault.memory.turn == Turn(9, 0)
    vault.approve(roster=b"r" * 32, terms=b"u" * 32)
    assert vault.memory.turn is None and vault.memory.pairs == {"site-b": b"pair"}
    vault.approve(roster=b"q" * 32, terms=b"u" * 32)
    assert vault.memory.pairs == {} and vault.memory.receipt == (9, "ab")
    vault.pin(roster=b"q" * 32, terms=b"u" * 32)


def test_what_was_pinned_stays_pinned():
    vault = Vault.create(MemoryStore(), MEMORY)
    vault.pin(roster=b"r" * 32, terms=b"t" * 32)
    again = Vault.open(vault.store)
    again.pin(roster=b"r" * 32, terms=b"t" * 32)
    for roster, terms, code in ((b"x" * 32, b"t" * 32, "CH601"), (b"r" * 32, b"x" * 32, "CH603")):
        with pytest.raises(TrustError) as refusal:
            again.pin(roster=roster, terms=terms)
        assert refusal.value.code == code


@pytest.mark.parametrize("passphrase", ["", " ", "\t\n"])
def test_an_empty_passphrase_seals_nothing_and_is_refused(tmp_path, passphrase):
    store = FileStore(tmp_path / "vault")
    with pytest.raises(ConfigError, match=r"CH102 the passphrase is empty"):
        Vault.create(store, MEMORY, passphrase)
    assert not store.exists()


@pytest.mark.parametrize("passphrase", [None, "correct horse"])
def test_a_memory_is_put_into_room_that_was_there_before(tmp_path, passphrase):
    store = FileStore(tmp_path / "vault")
    vault = Vault.create(store, MEMORY, passphrase)
    with vault.room() as put:
        assert Vault.open(store, passphrase).memory.turn is None
        put(msgspec.structs.replace(vault.memory, turn=Turn(2, 0)))
    assert Vault.open(store, passphrase).memory.turn == vault.memory.turn == Turn(2, 0)
    assert os.listdir(tmp_path) == ["vault"]


def test_a_vault_without_room_says_so_before_anything_else_happens(tmp_path, monkeypatch):
    store = FileStore(tmp_path / "vault")
    vault = Vault.create(store, MEMORY)

    def full(_descriptor, _data):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", full)
        with pytest.raises(StorageError, match="CH801"), vault.room():
            raise AssertionError("it went on")
    assert Vault.open(store).memory == MEMORY
