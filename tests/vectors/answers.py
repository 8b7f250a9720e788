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
