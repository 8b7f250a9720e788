"""The study's own authority and the server's certificate, as a TLS client sees them."""

import socket
import ssl
import threading

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from choral.core.errors import TrustError
from choral.deploy.certificates import fingerprint, new_authority, node_key, server_certificate


def shaken_hands(folder, authority, host):
    """The client's view of a TLS server with a certificate for fl.example.org, trusted through this authority."""
    real = new_authority("trial")
    pair = server_certificate(real, "fl.example.org")
    (folder / "server.pem").write_text(pair.certificate)
    (folder / "server.key").write_text(pair.key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "server.pem", folder / "server.key")
    one, other = socket.socketpair()

    def serve():
        try:
            serving.wrap_socket(one, server_side=True).close()
        except OSError:
            one.close()

    thread = threading.Thread(target=serve)
    thread.start()
    client = ssl.create_default_context(cadata=(authority or real).certificate)
    try:
        with client.wrap_socket(other, server_hostname=host) as wrapped:
            return wrapped.version()
    finally:
        other.close()
        thread.join()


@pytest.mark.parametrize("host", ["fl.example.org", "localhost", "127.0.0.1"])
def test_a_client_that_trusts_the_authority_accepts_the_server_under_its_names(tmp_path, host):
    assert shaken_hands(tmp_path, None, host) == "TLSv1.3"


def test_another_name_is_refused(tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken_hands(tmp_path, None, "other.example.org")


def test_another_authority_is_refused(tmp_path):
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken_hands(tmp_path, new_authority("trial"), "fl.example.org")


def test_a_node_key_is_one_that_opensshs_form_can_carry():
    private, public = node_key()
    key = load_ssh_private_key(private, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    assert key.public_key() == load_ssh_public_key(public.encode())


def test_what_is_no_certificate_has_no_fingerprint():
    with pytest.raises(TrustError, match="CH600"):
        fingerprint("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


def test_no_secret_is_in_a_repr():
    pair = new_authority("trial")
    assert pair.key.splitlines()[1] not in repr(pair)
