"""Events in words: "y > 100 at any step", "sum(y) > 500 and y < 0 at step 4".

    event       all-of, or several with "or" between them
    all-of      a comparison, or several with "and" between them
    comparison  TARGET RELATION NUMBER at any step | at every step | at step N
                SUMMARY(TARGET) RELATION NUMBER
    RELATION    > >= < <= == !=
    SUMMARY     sum, mean, min, max: over the steps

Steps count from 1. "at any step", "at every step" and summaries may end with "from N to N": these steps only, both
included. A target whose name is not one plain word stands in quotes: "net sales" > 3 at step 1. Nothing is evaluated
as Python.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np
from jaxtyping import Bool, Float

from smc_transformer.support.checks import shown

RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
SUMMARIES: dict[str, Callable[..., Any]] = {"sum": np.sum, "mean": np.mean, "min": np.min, "max": np.max}

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<relation> >=|<=|==|!=|>|< ) |
        (?P<number> [-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)? (?![\w.]) ) |
        (?P<word> [^\W\d][\w.]* ) |
        "(?P<double>[^"]+)" | '(?P<single>[^']+)' | `(?P<back>[^`]+)` |
        (?P<bracket> [()] )
    )""",
    re.VERBOSE,
)


class EventError(ValueError):
    """Words that are no event: what was expected, and what stands there instead."""


@dataclass(frozen=True)
class Comparison:
    """A number of a path compared with another."""

    target: str
    relation: str
    value: float
    summary: str  # how steps become one number, or one truth: a summary, "any", "every"
    steps: slice

    def holds(self, values: Mapping[str, Float[np.ndarray, "*path step"]]) -> Bool[np.ndarray, "*path"]:
        """Whether it is true of each path."""
        chosen, compare = values[self.target][..., self.steps], RELATIONS[self.relation]
        if self.summary in SUMMARIES:
            return np.asarray(compare(SUMMARIES[self.summary](chosen, axis=-1), self.value))
        true = compare(chosen, self.value)
        return np.asarray(true.any(axis=-1) if self.summary == "any" else true.all(axis=-1))


@dataclass(frozen=True)
class Event:
    """Comparisons of which all of one group, or of another, must hold."""

    groups: tuple[tuple[Comparison, ...], ...]

    def holds(self, values: Mapping[str, Float[np.ndarray, "*path step"]]) -> Bool[np.ndarray, "*path"]:
        """Whether it happens on each path; `values` are those of the targets."""
        each = [np.logical_and.reduce([one.holds(values) for one in group]) for group in self.groups]
        return np.asarray(np.logical_or.reduce(each))


def parse_event(text: str, targets: Sequence[str], horizon: int) -> Event:
    """Read an event about these targets of paths of so many steps.

    Example:
        >>> import numpy as np
        >>> event = parse_event("y > 2 at any step", ["y"], horizon=3)
        >>> event.holds({"y": np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 2.0]])}).tolist()
        [True, False]
    """
    return _Parser(text, tuple(targets), horizon).event()


class _Token(NamedTuple):
    kind: str  # relation, number, word, name (in quotes), bracket or end
    text: str
    place: int


_END = "end"


class _Parser:
    """Reads tokens from left to right; each method reads one thing of the grammar, or says what was expected."""

    def __init__(self, text: str, targets: tuple[str, ...], horizon: int):
        self.text, self.targets, self.horizon = text, targets, horizon
        self.tokens = self._tokens()
        self.next = 0

    def event(self) -> Event:
        groups = [self.all_of()]
        while self.takes("or"):
            groups.append(self.all_of())
        if self.token.kind != _END:
            self.fail('"and", "or" or the end')
        return Event(tuple(groups))

    def all_of(self) -> tuple[Comparison, ...]:
        found = [self.comparison()]
        while self.takes("and"):
            found.append(self.comparison())
        return tuple(found)

    def comparison(self) -> Comparison:
        summary = None
        if self.token.text in SUMMARIES and self.token.kind == "word" and self.tokens[self.next + 1].text == "(":
            summary = self.read().text
            self.read()
        target = self.target()
        if summary is not None and not self.takes(")"):
            self.fail(f'")" after {summary}({target}')
        if self.token.kind != "relation":
            self.fail(f"one of {' '.join(RELATIONS)} after {target!r}")
        relation = self.read().text
        if self.token.kind != "number":
            self.fail(f"a number after {relation!r}")
        value = float(self.read().text)
        if summary is not None:
            if self.token.text.lower() == "at":
                self.fail(f'"from", "and", "or" or the end, as {summary}({target}) is one number of a whole path')
            return Comparison(target, relation, value, summary, self.steps())
        if not self.takes("at"):
            self.fail(f'"at any step", "at every step" or "at step N" after {target!r} {relation} {value:g}')
        return Comparison(target, relation, value, *self.when())

    def when(self) -> tuple[str, slice]:
        """How steps become one truth, and which: what stands after "at"."""
        if self.takes("step"):
            step = self.step()
            return "any", slice(step - 1, step)
        for quantifier in ("any", "every"):
            if self.takes(quantifier):
                if not self.takes("step"):
                    self.fail(f'"step" after "at {quantifier}"')
                return quantifier, self.steps()
        return self.fail('"any step", "every step" or "step N" after "at"')

    def target(self) -> str:
        if self.token.kind not in ("word", "name") or self.token.text not in self.targets:
            self.fail(f"a target, one of {', '.join(map(repr, self.targets))},")
        return self.read().text

    def steps(self) -> slice:
        """The steps from N to N, or all."""
        if not self.takes("from"):
            return slice(0, self.horizon)
        first = self.step()
        if not self.takes("to"):
            self.fail(f'"to" after "from {first}"')
        if self.token.kind == "number" and float(self.token.text) < first:
            self.fail(f"a step not before {first}")
        return slice(first - 1, self.step())

    def step(self) -> int:
        token = self.token
        if token.kind != "number" or not token.text.isdigit() or not 1 <= int(token.text) <= self.horizon:
            self.fail(f"the number of a step, from 1 to {self.horizon},")
        return int(self.read().text)

    @property
    def token(self) -> _Token:
        return self.tokens[self.next]

    def read(self) -> _Token:
        self.next += 1
        return self.tokens[self.next - 1]

    def takes(self, word: str) -> bool:
        """Go on if this word comes next."""
        found = self.token.kind in ("word", "bracket") and self.token.text.lower() == word
        self.next += found
        return found

    def fail(self, expected: str) -> NoReturn:
        kind, text, place = self.token
        got = "the end" if kind == _END else f"{shown(text)} at character {place + 1}"
        raise EventError(f"event {shown(self.text)}: expected {expected} but got {got}")

    def _tokens(self) -> list[_Token]:
        found, place = [], 0
        length = len(self.text.rstrip())
        while place < length:
            match = _TOKEN.match(self.text, place)
            if match is None or match.lastgroup is None:
                start = place + len(self.text[place:]) - len(self.text[place:].lstrip())
                what = self.text[start:].split()[0]
                raise EventError(
                    f"event {shown(self.text)}: expected a target, a number or one of {' '.join(RELATIONS)} "
                    f"but got {shown(what)} at character {start + 1}"
                )
            kind = match.lastgroup
            quoted = kind in ("double", "single", "back")
            found.append(_Token("name" if quoted else kind, match[kind], match.start(kind) - quoted))
            place = match.end()
        return [*found, _Token(_END, "", length)]
