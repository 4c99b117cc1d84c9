"""Errors about what a user gave: each message says what was given, what was expected, and how to fix it."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """A value given by the user cannot be used; the command line prints it in one line and exits with status 2."""


def unknown(kind: str, given: object, known: Iterable[str]) -> InputError:
    """The error for a name that is not registered, with the nearest right spelling.

    >>> print(unknown("basis", "chebishev", ["chebyshev", "jacobi"]))
    basis 'chebishev' is unknown: expected one of chebyshev, jacobi; did you mean 'chebyshev'?
    """
    names = sorted(known)
    lower = {name.lower(): name for name in names}
    near = get_close_matches(str(given).lower(), lower, n=1, cutoff=0.5)
    hint = f"; did you mean {lower[near[0]]!r}?" if near else ""
    return InputError(f"{kind} {given!r} is unknown: expected one of {', '.join(names)}{hint}")
