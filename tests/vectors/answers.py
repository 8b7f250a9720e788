"""What an implementation says to a vector, in the vector's own form."""

from choral.core.errors import ChoralError


def expected(vector):
    return {key: vector[key] for key in ("gives", "refused") if key in vector}


def outcome(implementation, vector):
    """`gives` or `refused` of the implementation's function that bears the name of the vector's kind."""
    library = getattr(implementation, "REFUSALS", {})
    try:
        return {"gives": getattr(implementation, vector["kind"])(**vector["given"])}
    except ChoralError as error:
        return {"refused": error.code}
    except AssertionError as refusal:
        return {"refused": str(refusal)}
    except tuple(kind for kinds in library.values() for kind in kinds) as error:
        return {"refused": next(code for code, kinds in library.items() if isinstance(error, kinds))}


def of_before(vector):
    """Whether a vector is of a form of sums that choral 0.2 was the last to run: the second implementation still does.

    These are packed words, directed masks, and the paper's own protocol.
    """
    given = vector["given"]
    secure = given["terms"]["secure"] if "terms" in given and "devices" in given else {}
    forms = {"lanes": 1, "masks": "single", "mode": "choral"}
    return given.get("lanes", 1) != 1 or any(secure.get(name, usual) != usual for name, usual in forms.items())
