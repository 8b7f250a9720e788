"""A device as a study file names it: its public keys, checked."""

from typing import Self

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from choral.config.writing import to_toml
from choral.core.errors import TrustError
from choral.core.keys import Bundle, Identity


class Enrolled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A device as the study names it: its bundle in hex, and the key by which the transport knows its node.

    A card of 0.1 offers nothing; such cards, and the digests of studies with them, stay as they are.
    """

    id: str
    identity: str
    agreement: str
    signature: str
    node: str
    node_signature: str
    offers: tuple[str, ...] = ()

    @classmethod
    def of(cls, identity: Identity, node: str) -> Self:
        """The public card of a device: its signed bundle, and its node's key under its signature."""
        bundle = identity.bundle
        return cls(
            id=bundle.id,
            identity=bundle.identity.hex(),
            agreement=bundle.agreement.hex(),
            signature=bundle.signature.hex(),
            node=node,
            node_signature=identity.sign("node key", node.encode()).hex(),
            offers=bundle.offers,
        )

    @property
    def text(self) -> str:
        """The file of a card, which a device sends to the coordinator."""
        head = "# The public card of a choral device: send it to the coordinator.\n"
        return head + to_toml(msgspec.to_builtins(self))

    @property
    def bundle(self) -> Bundle:
        """The bundle, its form, the node's key and the signature over that checked."""
        try:
            identity, agreement, signature, signed = (
                bytes.fromhex(text) for text in (self.identity, self.agreement, self.signature, self.node_signature)
            )
        except ValueError:
            raise TrustError("CH600", "a device's keys are not written in hex.", fix="Get its card again.") from None
        bundle = Bundle(id=self.id, identity=identity, agreement=agreement, signature=signature, offers=self.offers)
        bundle.verify()
        bundle.check(signed, "node key", self.node.encode())
        _check_node_key(self.node)
        return bundle


def _check_node_key(public: str) -> None:
    try:
        key: object = load_ssh_public_key(public.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, EllipticCurvePublicKey):
        raise TrustError("CH600", "a node's key is no key of an elliptic curve.", fix="Get the device's card again.")
