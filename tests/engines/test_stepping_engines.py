"""The step inside engines of others, where they are installed: a crash half-way, resumed, nothing lost or twice."""

import json
import random

import pytest
from helpers.forecaster_tables import make, walks

from smc_transformer.forecaster.stepping import Stepper

pytestmark = pytest.mark.filterwarnings("ignore")  # engines warn about themselves


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    make().fit(walks(40, 40, 40), progress=False).save(folder)
    return folder


def rows():
    """Of three series of the model, and one that is new."""
    chance, times, found = random.Random(0), dict.fromkeys("abcz", 40), []
    for _ in range(40):
        name = chance.choice("abcz")
        found.append({"unique_id": name, "ds": times[name], "y": round(chance.gauss(0, 1), 3)})
        times[name] += 1
    return found


def undisturbed(stepper, given):
    """The answers by series and time, and the last states."""
    states, answers = dict.fromkeys("abcz"), {}
    for row in given:
        states[row["unique_id"]], (answer,) = stepper.step(states[row["unique_id"]], [row])
        answers[row["unique_id"], row["ds"]] = answer
    return answers, states


def test_bytewax_resumes_after_an_exception(folder, tmp_path):
    pytest.importorskip("bytewax", reason="bytewax is not installed: pip install bytewax")
    from datetime import timedelta

    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.recovery import RecoveryConfig, init_db_dir
    from bytewax.testing import TestingSink, TestingSource, run_main

    from examples.engines.bytewax_surprises import surprises

    stepper, given = Stepper(folder, n_paths=5), rows()
    expected, states = undisturbed(stepper, given)
    (tmp_path / "recovery").mkdir()
    init_db_dir(tmp_path / "recovery", 1)
    recovery, found, failures = RecoveryConfig(str(tmp_path / "recovery")), [], [9, 10, 25]

    def fail_sometimes(pair):
        if failures and len(found) >= failures[0]:
            failures.pop(0)
            raise RuntimeError("half-way")
        return pair

    def flow():
        made = Dataflow("surprises")
        keyed = op.key_on("series", op.input("rows", made, TestingSource(given)), lambda row: row["unique_id"])
        answers = op.map("fail", surprises("follow", keyed, stepper), fail_sometimes)
        op.output("out", answers, TestingSink(found))
        return made

    n_runs = 0
    while True:
        n_runs += 1
        try:
            run_main(flow(), epoch_interval=timedelta(0), recovery_config=recovery)
            break
        except RuntimeError:
            continue
    assert n_runs == 4
    by_row = {}
    for _, answer in found:  # what was answered in an epoch that was not closed is answered again, the same
        key = answer["unique_id"], answer["ds"]
        assert by_row.setdefault(key, answer) == answer
    assert by_row == expected
    # One more row of each series goes on from the very states of an undisturbed run.
    found.clear()
    more = [{"unique_id": name, "ds": 100, "y": 0.0} for name in "abcz"]
    given += more
    run_main(flow(), epoch_interval=timedelta(0), recovery_config=recovery)
    last = {answer["unique_id"]: answer for _, answer in found if answer["ds"] == 100}
    assert last == {row["unique_id"]: stepper.step(states[row["unique_id"]], [row])[1][0] for row in more}


def test_spark_resumes_from_its_checkpoint(spark, folder, tmp_path):
    from pyspark.errors import StreamingQueryException

    from examples.engines.spark_surprises import follow, session

    stepper, given = Stepper(folder, n_paths=5), rows()
    expected, _ = undisturbed(stepper, given)
    running, found, failures = session(), [], ["half-way"]
    (tmp_path / "rows").mkdir()

    def take(batch, number):
        answers = batch.collect()
        if number == 1 and failures:  # computed, but neither stored nor committed
            raise RuntimeError(failures.pop())
        found.extend(answers)

    def run():
        answers = follow(running.readStream.text(str(tmp_path / "rows")), str(folder), "unique_id", n_paths=5)
        writer = answers.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def put(number):
        text = "\n".join(json.dumps(row) for row in given[number * 20 : number * 20 + 20])
        (tmp_path / "rows" / f"{number}.jsonl").write_text(text)

    put(0)
    run()
    put(1)
    with pytest.raises(StreamingQueryException, match="half-way"):
        run()
    run()
    assert not failures
    read = [json.loads(one["answer"]) for one in found]
    assert {(one["unique_id"], one["ds"]): one for one in read} == expected
    assert len(read) == len(given)
