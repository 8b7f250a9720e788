"""A coordinator's decisions: signed with the server's key, taken back by another, kept to from the next round on."""

import json
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from choral.core.errors import ConfigError, TrustError
from choral.deploy.certificates import check_signature, sign
from choral.deploy.enrolment import decide, excluded_by
from tests.run.consortium import NAMES, Consortium, Sockets, agents


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory):
    from tests.deploy.test_probed import ROBUST

    made = Consortium(tmp_path_factory.mktemp("decided"), names=(*NAMES, "moor"), job=ROBUST)
    made.approve(probes=True)
    return made


@pytest.fixture
def study(enrolled, tmp_path):
    made = enrolled.copy(tmp_path)
    (tmp_path / "why.txt").write_text("round 4 was opened, and its answers were false\n")
    return made


def test_an_excluded_device_is_in_no_cohort_until_it_is_readmitted(study):
    why = study.folder / "why.txt"
    decide(study.study, "lake", excluded=True, because=why)
    assert excluded_by(study.study, study.agreement) == {"lake"}
    with agents(study.homes):
        conductor = study.conductor(Sockets(study.homes))
        conductor.run()
    folder = next((study.study / "runs").iterdir())
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [line["cohort"] for line in lines] == [[0, 1, 3]] * 2
    made = decide(study.study, "lake", excluded=False, because=why)
    assert excluded_by(study.study, study.agreement) == frozenset()
    assert made.answers is not None  # the answers that the decision was made on


@pytest.mark.parametrize("change", [{"device": "hill"}, {"excluded": False}, {"because": "00"}, {"at": "2026-01-01"}])
def test_a_decision_that_was_changed_is_refused(study, change):
    decide(study.study, "lake", excluded=True, because=study.folder / "why.txt")
    path = study.study / "decisions.jsonl"
    path.write_text(json.dumps(json.loads(path.read_text()) | change) + "\n")
    with pytest.raises(TrustError, match="CH606"):
        excluded_by(study.study, study.agreement)


def test_nobody_decides_about_strangers_or_without_a_reason(study):
    with pytest.raises(ConfigError, match=r'CH102.*"desert" is no device'):
        decide(study.study, "desert", excluded=True, because=study.folder / "why.txt")
    with pytest.raises(ConfigError, match=r"CH102.*nothing.txt can't be read"):
        decide(study.study, "lake", excluded=True, because=study.folder / "nothing.txt")
    assert not (study.study / "decisions.jsonl").exists()


def test_keys_of_rsa_sign_as_well_and_others_are_refused():
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "choral")])
    private, day = rsa.generate_private_key(65537, 2048), datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, private.public_key(), 1, day, day.replace(year=2027))
    certificate = builder.sign(private, SHA256()).public_bytes(Encoding.PEM).decode()
    signature = sign(pem(private), b"text")
    check_signature(certificate, signature, b"text")
    with pytest.raises(TrustError, match="CH606"):
        check_signature(certificate, signature, b"other")
    with pytest.raises(ConfigError, match="CH102"):
        sign(pem(Ed25519PrivateKey.generate()), b"text")


def pem(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
