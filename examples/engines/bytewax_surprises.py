"""A stateful operator in Bytewax: the filter step as a pure function, the state in Bytewax's hands.

    python -m bytewax.run "examples.engines.bytewax_surprises:flow('model', 'rows.jsonl')" -r recovery

Bytewax saves the states of all series and the place in the input together, at the end of each epoch; after a crash it
goes back to the last of these. A row is then seen again with the state from before it, so its answer is the same to the
bit, and nothing is lost or counted twice: a sink that stores answers by series and time has each one exactly once.
"""

import json
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.files import FileSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic

from smc_transformer.forecaster.stepping import Stepper


class Following(StatefulBatchLogic):
    """One series: its state is bytes, and each batch of rows is one step."""

    def __init__(self, stepper, state):
        self.stepper, self.state = stepper, state

    def on_batch(self, rows):
        # None before the first rows of a series: it goes on from the model's folder, or begins if it is new.
        self.state, answers = self.stepper.step(self.state, rows)
        return answers, StatefulBatchLogic.RETAIN

    def snapshot(self):
        return self.state


def surprises(step_id, rows, stepper):
    """The answer to each row of a stream of (series, row)."""
    return op.stateful_batch(step_id, rows, lambda state: Following(stepper, state))


def flow(model, path):
    """Rows from a file of JSON lines, answers to standard output."""
    stepper = Stepper(model, n_paths=100)
    dataflow = Dataflow("surprises")
    rows = op.map("read", op.input("lines", dataflow, FileSource(Path(path))), json.loads)
    keyed = op.key_on("series", rows, lambda row: str(row[stepper.id_column]))
    answers = surprises("follow", keyed, stepper)
    op.output("out", op.map("write", answers, lambda pair: json.dumps(pair[1])), StdOutSink())
    return dataflow
