"""One run from its scenario to its finished folder."""

from collections.abc import Callable
from pathlib import Path

from fl_core.verify import LedgerSource
from fl_simulator.config.experiment import PlannedRun, scenario_toml
from fl_simulator.config.scenario import Scenario
from fl_simulator.config.virtual_time import strategy_registry
from fl_simulator.engine.asynchronous import AsynchronousRun
from fl_simulator.engine.conditions import Conditions
from fl_simulator.engine.evaluation import Engine
from fl_simulator.engine.rounds import Rounds
from fl_simulator.engine.timed_rounds import TimedRounds
from fl_simulator.engine.world import World
from fl_simulator.errors import ResultsError
from fl_simulator.run.folder import CHECKPOINT, LEDGER, RunFolder
from fl_simulator.run.measure import client_rows, record_of, summary_of
from fl_simulator.run.peak_memory import PeakMemory
from fl_simulator.run.prepare import build_world, changes_of
from fl_simulator.run.record import RoundRecord
from fl_simulator.run.trace import TraceWriter
from fl_simulator.strategies import STRATEGIES
from fl_simulator.strategies.protocol import State

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

    Returns:
        Whether the run is finished.

    Raises:
        SimulationError, DataError, TrainingError: It cannot be played; what was done before is kept.
    """
    scenario = planned.scenario
    memory = PeakMemory()
    world = build_world(scenario, workers=workers)
    try:
        engine = build_engine(scenario, world)
        strategy = engine.strategy
        if folder.resumed_from is not None:
            _restore(engine, folder.resumed_from, folder.path)
            strategy.take_edges()  # which the trace has
        trace = TraceWriter(
            folder.path, most=scenario.run.trace, rounds=len(folder.records), has_ledger=strategy.ledger is not None
        )
        clients: list[tuple[object, ...]] = []
        for interval in engine.play():
            assert interval.number == len(folder.records), "a restored run goes on where it stopped"
            record = record_of(interval, world, strategy, scenario, memory)
            folder.append(record)
            clients = client_rows(interval) or clients
            if scenario.run.trace:
                trace.append(interval.number, strategy.take_edges(), strategy.choices)
            on_round(record)
            stopping, done = should_stop(), interval.number + 1
            if done < scenario.num_intervals and (stopping or done % scenario.run.checkpoint_every == 0):
                folder.save_checkpoint(engine.state())
            if stopping and done < scenario.num_intervals:
                return False
        if strategy.ledger is not None:
            folder.save_choices(strategy.choices, world.population.clusters)
            if write_ledger is not None and scenario.run.ledger:
                write_ledger(strategy.ledger.record, folder.path / LEDGER)
        folder.finish(summary_of(world, strategy, scenario, folder.records), clients=clients)
        return True
    finally:
        world.close()


def _restore(engine: Engine, state: State, path: Path) -> None:
    try:
        engine.restore(state)
    except KeyError as error:
        raise ResultsError(
            f"{path / CHECKPOINT} was written by another version of the simulator (it has no {error}); "
            f"begin the run anew with --overwrite, or delete its folder"
        ) from error


def build_engine(scenario: Scenario, world: World) -> Engine:
    """The scenario's run in this world, at its beginning."""
    chosen, run, timed = scenario.strategy, scenario.run, scenario.asynchronous
    registry = strategy_registry(chosen.name, timed)
    strategy = registry.build(chosen.name, chosen.params, world)
    if timed is None:
        return Rounds(
            world,
            strategy,
            rounds=run.rounds,
            participation=run.participation,
            evaluate_every=run.evaluate_every,
            changes=changes_of(scenario, world),
        )
    conditions = Conditions(timed.conditions, world.seeds, world.num_clients)
    if registry is STRATEGIES:
        return TimedRounds(world, strategy, conditions, timed.schedule, participation=run.participation)
    return AsynchronousRun(world, strategy, conditions, timed.schedule)


def open_folder(planned: PlannedRun, path: Path, *, overwrite: bool) -> RunFolder:
    """A planned run's folder; see ``RunFolder.open``."""
    return RunFolder.open(path, scenario=scenario_toml(planned.scenario), label=planned.label, overwrite=overwrite)
