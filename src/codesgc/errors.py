"""Errors about what a user gave: each message says what was given, what was expected, and how to fix it."""

import inspect
import operator
from collections.abc import Collection, Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """A value given by the user cannot be used; the command line prints it in one line and exits with status 2."""


def unknown(kind: str, given: object, known: Iterable[str]) -> InputError:
    """The error for a name that is not registered, with the nearest right spelling.

    >>> print(unknown("basis", "chebishev", ["chebyshev", "jacobi"]))
    basis 'chebishev' is unknown: expected one of chebyshev, jacobi; did you mean 'chebyshev'?
    """
    names = sorted(known)
    if not names:
        return InputError(f"{kind} {given!r} is unknown: there are none")
    lower = {name.lower(): name for name in names}
    near = get_close_matches(str(given).lower(), lower, n=1, cutoff=0.5)
    hint = f"; did you mean {lower[near[0]]!r}?" if near else ""
    return InputError(f"{kind} {given!r} is unknown: expected one of {', '.join(names)}{hint}")


def whole(label: str, value: object, least: int = 1) -> int:
    """The whole number that was given, or an error.

    >>> whole("rank", 8)
    8
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # anything may come here; what is no integer raises
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise InputError(f"{label} {value!r}: expected a whole number >= {least}")
    return number


def _accepted_options(cls: type) -> set[str]:
    """Names of the keyword arguments of a class, those its constructor hands on to its parents' included."""
    names: set[str] = set()
    for parent in cls.__mro__:
        if "__init__" not in vars(parent):
            continue
        parameters = inspect.signature(vars(parent)["__init__"]).parameters.values()
        names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if not any(p.kind == p.VAR_KEYWORD for p in parameters):
            break
    return names - {"self"}


def check_options(owner: str, cls: type, options: Iterable[str], reserved: Collection[str] = ()) -> None:
    """An error for an option that the class has no parameter for, or that is not the user's to set."""
    accepted = _accepted_options(cls) - set(reserved)
    for option in options:
        if option not in accepted:
            raise unknown(f"option of {owner}:", option, accepted)
