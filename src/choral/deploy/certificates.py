"""Keys and certificates of a deployment's transport: a small authority, the server's certificate, a node's key."""

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from choral.core.errors import ConfigError, DeploymentError, TrustError

AUTHORITY_DAYS, SERVER_DAYS = 3650, 825
_EARLIER = timedelta(hours=1)  # clocks of two organisations differ
_LOCAL = ("localhost", "127.0.0.1")  # the server's own processes reach it there


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A certificate and its private key, both as PEM; the repr shows neither."""

    certificate: str = field(repr=False)
    key: str = field(repr=False)


def new_authority(name: str) -> Pair:
    """A fresh certificate authority for one study; its key signs the server's certificate and nothing else.

    >>> fingerprint(new_authority("trial").certificate).count(":")
    31
    """
    key, subject = ec.generate_private_key(ec.SECP256R1()), _name(f"choral study {name}"[:64])
    usage = _usage(signs=True)
    built = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    built = built.add_extension(usage, critical=True)
    built = built.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return Pair(certificate=_pem(built.sign(key, SHA256())), key=_private(key))


def server_certificate(authority: Pair, host: str) -> Pair:
    """A fresh certificate for the server under this host name or address, and on its own machine.

    >>> "BEGIN CERTIFICATE" in server_certificate(new_authority("trial"), "fl.example.org").certificate
    True
    """
    issuer, signer = _load(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([_alternative(name) for name in dict.fromkeys((host, *_LOCAL))])
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    built = _builder(_name(host[:64]), issuer.subject, key.public_key(), SERVER_DAYS)
    built = built.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    built = built.add_extension(_usage(signs=False), critical=True)
    built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    built = built.add_extension(names, critical=False).add_extension(identifier, critical=False)
    built = built.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return Pair(certificate=_pem(built.sign(signer, SHA256())), key=_private(key))


def node_key() -> tuple[bytes, str]:
    """A fresh key for a node: the private part for the node's own file, the public part as one line of text.

    >>> node_key()[1].startswith("ecdsa-sha2-nistp384 ")
    True
    """
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def speaking_key() -> tuple[str, str]:
    """A fresh key under which a server signs its frames: the private part as PEM, the public part in hex.

    >>> len(speaking_key()[1])
    64
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return private, key.public_key().public_bytes_raw().hex()


def speaks_with(private: str, public: str) -> Ed25519PrivateKey:
    """The key in a PEM text; CH603 if it is not the private part of this one."""
    try:
        key: object = load_pem_private_key(private.encode(), None)
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PrivateKey) or key.public_key().public_bytes_raw().hex() != public:
        raise TrustError(
            "CH603",
            "the key in speaks.key is not the one that the study names as its server's.",
            fix="Restore the study's folder, or enrol again: sites refuse whatever another key signs.",
        )
    return key


def fingerprint(certificate: str) -> str:
    """SHA-256 of a certificate, in the form in which OpenSSL and browsers show it."""
    return _parsed(certificate).fingerprint(SHA256()).hex(":").upper()


def host_of(address: str) -> str:
    """The host of host:port, or CH102.

    >>> host_of("fl.example.org:9092"), host_of("[::1]:9092")
    ('fl.example.org', '::1')
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ConfigError("CH102", f'the address is "{address}".', fix="Give host:port, as in fl.example.org:9092.")
    return host.removeprefix("[").removesuffix("]")


def check_dates(*certificates: str) -> None:
    """It raises CH906: by this machine's clock one of these certificates is not valid yet, or no more.

    >>> check_dates(new_authority("trial").certificate)
    """
    now = datetime.now(UTC)
    for one in map(_parsed, certificates):
        begin, end = one.not_valid_before_utc, one.not_valid_after_utc
        if not begin <= now <= end:
            raise DeploymentError(
                "CH906",
                f"a certificate is valid from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, and this machine's "
                f"clock says {now:%Y-%m-%d %H:%M}.",
                where=one.subject.rfc4514_string(),
                fix="If the clock is wrong, set it and use NTP. If it is right, the coordinator makes another "
                "certificate (choral server init, in a new folder), and the sites join again with --again.",
            )


def valid_until(certificate: str) -> str:
    """The moment at which a certificate ends, as an ISO time.

    >>> valid_until(new_authority("trial").certificate) > datetime.now(UTC).isoformat()
    True
    """
    return _parsed(certificate).not_valid_after_utc.isoformat(timespec="seconds")


def sign(key: str, text: bytes) -> bytes:
    """A signature with the server's private key, by SHA-256."""
    private = load_pem_private_key(key.encode(), password=None)
    if isinstance(private, ec.EllipticCurvePrivateKey):
        return private.sign(text, ec.ECDSA(SHA256()))
    if isinstance(private, rsa.RSAPrivateKey):
        return private.sign(text, _padding(), SHA256())
    raise ConfigError("CH102", "the server's key is neither RSA nor of an elliptic curve.", fix="Use such a key.")


def check_signature(certificate: str, signature: bytes, text: bytes) -> None:
    """It raises unless the owner of this certificate signed the text, else CH606."""
    public = _parsed(certificate).public_key()
    try:
        if isinstance(public, ec.EllipticCurvePublicKey):
            return public.verify(signature, text, ec.ECDSA(SHA256()))
        if isinstance(public, rsa.RSAPublicKey):
            return public.verify(signature, text, _padding(), SHA256())
    except InvalidSignature:
        pass
    raise TrustError(
        "CH606",
        "a decision is not signed with the server's key.",
        fix="Take the line out of decisions.jsonl, and decide again.",
    )


def _padding() -> padding.PSS:
    return padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=padding.PSS.MAX_LENGTH)


def _parsed(certificate: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        raise TrustError("CH600", "a certificate is not PEM.", fix="Get the file again.") from None


def _load(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        key = load_pem_private_key(pair.key.encode(), password=None)
    except (ValueError, TypeError):
        raise ConfigError("CH102", "the authority's certificate or key is not PEM.", fix="Check the files.") from None
    assert isinstance(key, ec.EllipticCurvePrivateKey)  # noqa: S101 - new_authority makes no other
    return certificate, key


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
