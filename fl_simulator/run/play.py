"""One run from its scenario to its finished folder."""

from collections.abc import Callable
from pathlib import Path

from fl_core.verify import LedgerSource
from fl_simulator.config.experiment import PlannedRun, scenario_toml
from fl_simulator.config.scenario import Scenario
from fl_simulator.engine.evaluation import TimedRun
from fl_simulator.engine.rounds import Rounds
from fl_simulator.engine.virtual_time import build_timed_run
from fl_simulator.engine.world import World
from fl_simulator.errors import ResultsError
from fl_simulator.run.folder import CHECKPOINT, LEDGER, SCENARIO, RunFolder
from fl_simulator.run.measure import client_figures_of, costs_of, record_of, summary_of
from fl_simulator.run.peak_memory import PeakMemory
from fl_simulator.run.prepare import build_world
from fl_simulator.run.record import Checkpoint, RoundRecord
from fl_simulator.run.trace import Trace
from fl_simulator.strategies import STRATEGIES

WriteLedger = Callable[[LedgerSource, Path], object]
"""Writes a ledger to a file."""


def run(
    planned: PlannedRun,
    folder: RunFolder,
    *,
    workers: int = 0,
    on_round: Callable[[RoundRecord], None] = lambda _record: None,
    should_stop: Callable[[], bool] = lambda: False,
    write_ledger: WriteLedger | None = None,
) -> bool:
    """Play a run to its end, or until it is told to stop.

    Args:
        planned: The run.
        folder: Its folder, new or resumed.
        workers: Threads or processes that train; 0: one for each core.
        on_round: Called after each round.
        should_stop: Asked after each round; a stopped run has a checkpoint.
        write_ledger: How the ledger of a method that has one is kept, where the scenario wants it.

    Returns:
        Whether the run is finished.

    Raises:
        SimulationError, DataError, TrainingError: It cannot be played; what was done before is kept.
    """
    scenario = planned.scenario
    memory = PeakMemory()
    world = build_world(scenario, workers=workers)
    try:
        played = build_run(scenario, world)
        if (checkpoint := folder.resumed_from) is not None:
            _restore(played, checkpoint, folder)
            played.strategy.take_edges()  # which the trace has
        strategy, rounds = played.strategy, len(folder.records)
        trace = Trace(folder.path, most=scenario.run.trace, rounds=rounds, has_ledger=strategy.ledger is not None)
        for interval in played.play():
            assert interval.number >= len(folder.records), "a restored run goes on where it stopped"
            record = record_of(interval, world, strategy, scenario, memory)
            folder.append(record, clients=client_figures_of(interval, world))
            if scenario.run.trace:
                trace.append(interval.number, strategy.take_edges(), strategy.choices)
            on_round(record)
            stopping = should_stop()
            done = interval.number + 1
            if done < scenario.num_intervals and (stopping or done % scenario.run.checkpoint_every == 0):
                folder.save_checkpoint(Checkpoint(done, played.state()))
            if stopping and done < scenario.num_intervals:
                return False
        if strategy.ledger is not None:
            folder.save_choices(strategy.choices, world.population.clusters)
            if write_ledger is not None and scenario.run.ledger:
                write_ledger(strategy.ledger.record, folder.path / LEDGER)
        costs = None if scenario.asynchronous else costs_of(world, strategy, folder.records)
        folder.finish(summary_of(world), costs=costs)
        return True
    finally:
        world.close()


def _restore(played: TimedRun, checkpoint: Checkpoint, folder: RunFolder) -> None:
    try:
        played.restore(checkpoint.state)
    except KeyError as error:
        raise ResultsError(
            f"{folder.path / CHECKPOINT} was written by another version of the simulator (it has no {error}); "
            f"begin the run anew with --overwrite, or delete its folder"
        ) from error


def build_run(scenario: Scenario, world: World) -> TimedRun:
    """The scenario's run in this world, at its beginning: in rounds, or in virtual time.

    Raises:
        ScenarioError: It cannot be.
    """
    chosen, run = scenario.strategy, scenario.run
    if scenario.asynchronous is not None:
        return build_timed_run(
            chosen.name, chosen.params, world, scenario.asynchronous, participation=run.participation
        )
    return Rounds(
        world,
        STRATEGIES.build(chosen.name, chosen.params, world),
        rounds=run.rounds,
        participation=run.participation,
        evaluate_every=run.evaluate_every,
    )


def open_folder(planned: PlannedRun, path: Path, *, overwrite: bool) -> RunFolder:
    """A run's folder, at the run's beginning or where it was interrupted.

    Raises:
        RunExistsError: It is finished.
        SimulationError: It holds another scenario's run, and ``overwrite`` is false; or another process has it.
    """
    text = scenario_toml(planned.scenario)
    if overwrite or not (path / SCENARIO).is_file():
        return RunFolder.create(path, scenario=text, label=planned.label, overwrite=overwrite)
    return RunFolder.resume(path, scenario=text)
