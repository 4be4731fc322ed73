"""Types and shapes in signatures, checked once for each combination of them.

Whether arguments and results fit a signature depends on their types, dtypes and shapes alone, so a function that has
been called with the same ones, and has returned the same ones, need not be checked again. With a check of every call,
jaxtyping and beartype would take more than half of the time of tests with many small steps. Of functions that are
called thousands of times, only some of the later calls are looked at.
"""

import functools
import inspect
import itertools
import types

import jaxtyping
import numpy as np
from torch import Tensor

PLAIN = {bool, int, float, type(None)}

OFTEN, SOME = 300, 16
"""After so many calls of a function, one in this many is looked at."""

MOST = 20
"""Elements of a container that are looked at; beartype itself looks at one of a list, drawn at random."""


def kind_of(value):
    """All of a value that a signature may speak of."""
    kind = type(value)
    if kind in PLAIN:
        return kind
    if kind is Tensor:
        return value.dtype, value.shape
    if kind is str:
        return value  # it may have to be one of a few words
    if isinstance(value, (Tensor, np.ndarray)):
        return kind, value.dtype, value.shape
    if isinstance(value, (tuple, list)):
        return kind, len(value), tuple(map(kind_of, value[:MOST]))
    if isinstance(value, dict):
        return kind, tuple((kind_of(name), kind_of(part)) for name, part in list(value.items())[:MOST])
    return kind


class CheckOnce:
    """In the place of `jaxtyping.jaxtyped`, which the import hook puts on every function and class of the package."""

    def __init__(self, jaxtyped):
        self.jaxtyped = jaxtyped
        self.fits = {}  # by the code of a function: kinds of arguments, and of the results that came with them

    def __call__(self, decorated=None, *, typechecker):
        if decorated is None:
            return functools.partial(self, typechecker=typechecker)
        if not isinstance(decorated, types.FunctionType):
            return self.jaxtyped(decorated, typechecker=typechecker)
        return self.checking_once(decorated, functools.partial(self.jaxtyped, typechecker=typechecker))

    def checking_once(self, function, with_checks):
        fits = self.fits.setdefault(function.__code__, {})  # shared by what a closure is made as, time after time
        # Made once each, when they are needed: beartype writes code for every signature.
        with_arguments = functools.cache(lambda: with_checks(function))
        calls, returned = itertools.count(), []
        with_result = functools.cache(lambda: with_checks(_returning(returned, function)))

        @functools.wraps(function)
        def checked(*arguments, **options):
            number = next(calls)
            if (number > OFTEN and number % SOME) or jaxtyping.config.jaxtyping_disable:
                return function(*arguments, **options)
            kinds = tuple(map(kind_of, arguments))
            if options:
                kinds += tuple((name, kind_of(value)) for name, value in options.items())
            results = fits.get(kinds)
            if results is None:
                result = with_arguments()(*arguments, **options)
                fits[kinds] = {kind_of(result)}
                return result
            result = function(*arguments, **options)
            kind = kind_of(result)
            if kind not in results:
                returned.append(result)
                with_result()(*arguments, **options)
                results.add(kind)
            return result

        # For those who do not look behind the decorator, such as the checks of sktime.
        checked.__signature__ = inspect.signature(function)
        return checked


def _returning(returned, like):
    """A function with the signature of another, which takes its result off a list."""

    def known(*arguments, **options):
        return returned.pop()

    # Annotations that are strings are looked up among the globals of the function.
    made = types.FunctionType(known.__code__, like.__globals__, like.__name__, None, known.__closure__)
    return functools.update_wrapper(made, like)
