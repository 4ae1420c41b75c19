"""From a scenario to the world that it describes: data, clients, trainer. Needs torch, loaded when it is called."""

from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fl_simulator.attacks import ATTACKERS
from fl_simulator.attacks.attack import Attack, seat
from fl_simulator.config.scenario import ClientFile, Scenario
from fl_simulator.data.fetch import load
from fl_simulator.data.partition import PARTITIONERS
from fl_simulator.engine.population import Population, exchanged, gather, holding_out, standardised
from fl_simulator.engine.rounds import Changes
from fl_simulator.engine.world import LocalTraining, World
from fl_simulator.errors import ScenarioError
from fl_simulator.graphs.graph import Graph
from fl_simulator.graphs.links import Links
from fl_simulator.graphs.topology import build_graph
from fl_simulator.models.catalogue import MODELS
from fl_simulator.run.processes import usable_cores
from fl_simulator.seeds import Seeds
from fl_simulator.training import build_trainer
from fl_simulator.training.sites import load_sites

Images: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
"""Shape ``(n, …)``: bytes in 0..255, or float32 in [0, 1]."""


def build_population(scenario: Scenario) -> Population:
    """The scenario's clients with their samples; models, training and strategy play no part.

    Raises:
        DataError: The data set is not here, or damaged; the message says how to get it.
        PartitionError: The samples cannot be shared out so.
    """
    run, seeds = scenario.run, Seeds(scenario.run.seed)
    images, labels, test = _samples(scenario, seeds)
    shares = PARTITIONERS.build(
        scenario.partition.name,
        scenario.partition.params,
        labels,
        train_fraction=run.train_fraction if test is None else 1.0,
        rng=seeds.generator("partition"),
    )
    if test is None and run.test_samples:
        shares = [replace(share, test=share.test[: run.test_samples]) for share in shares]
    known = labels if test is None else np.concatenate([labels, test[1]])
    population = gather(images, labels, shares, num_classes=int(known.max()) + 1, common_test=test)
    if run.held_out:
        population = holding_out(population, run.held_out, rng=seeds.generator("held out"))
    return standardised(population) if scenario.data.pixels == "standardised" else population


def _samples(
    scenario: Scenario, seeds: Seeds
) -> tuple[Images, NDArray[np.int64], tuple[Images, NDArray[np.int64]] | None]:
    """Images and labels that are shared out, and those that everybody is tested on; None for each client's own."""
    common = scenario.data.test == "common"
    data = load(scenario.data.name)
    images: Images = data.train_x
    test_images: Images = data.test_x
    labels, test_labels = data.train_y.astype(np.int64), data.test_y.astype(np.int64)
    if not common:
        if scenario.data.parts == "all":
            images = np.concatenate([images, test_images])
            labels = np.concatenate([labels, test_labels])
        return images, labels, None
    if not len(test_labels):
        order = seeds.generator("test").permutation(len(labels))
        middle = round(len(order) * scenario.run.train_fraction)
        test = order[middle:]
        test_images, test_labels = images[test], labels[test]
        images, labels = images[order[:middle]], labels[order[:middle]]
    if 0 < scenario.run.test_samples < len(test_labels):
        some = np.sort(seeds.generator("test samples").permutation(len(test_labels))[: scenario.run.test_samples])
        test_images, test_labels = test_images[some], test_labels[some]
    return images, labels, (test_images, test_labels)


def build_run_graph(scenario: Scenario, population: Population) -> Graph | None:
    """The graph that the scenario's nodes stand on, drawn from its seed; None where it names no topology."""
    chosen = scenario.topology
    if chosen is None:
        return None
    return build_graph(
        chosen.name,
        chosen.params,
        count=population.num_clients,
        rng=Seeds(scenario.run.seed).generator("topology"),
        label_counts=population.train_label_counts,
        weights=chosen.links.weights,
    )


def build_world(scenario: Scenario, *, workers: int = 0) -> World:
    """The scenario's clients and a trainer for them; close the trainer when done.

    Raises:
        DataError, PartitionError, ScenarioError: As ``build_population``; or the model does not fit the images, or an
            attacker is to take the place of a client that there is not.
        ParameterError: As ``build_run_graph``.
        TorchMissingError: PyTorch is not installed.
        UserModuleError: A client's own file does not do what it is to do.
    """
    if scenario.client is not None:
        return _own_world(scenario, scenario.client, workers=workers)
    population, training, seeds = build_population(scenario), scenario.training, Seeds(scenario.run.seed)
    graph = build_run_graph(scenario, population)
    if (chosen := scenario.attack) is not None:
        attacker = ATTACKERS.build(chosen.name, chosen.params)
        population, poisoned, triggered = seat(attacker, chosen.places, population, seeds)
    trainer = build_trainer(
        scenario.model.name,
        population,
        recipe=training,
        seeds=seeds,
        init=scenario.model.init,
        device=training.device,
        workers=workers,
    )
    local = LocalTraining(training.epochs, training.initial_epochs, training.steps, training.learning_rate)
    attack = None
    if chosen is not None:
        attack = Attack(attacker, chosen.places, population.clusters, trainer.layout, seeds, poisoned, triggered)
    compared = MODELS[scenario.model.name].last_layers if scenario.model.similarity_layers == "last" else ()
    return World(
        population,
        trainer,
        seeds,
        local,
        compared,
        workers=workers or usable_cores(),
        graph=graph,
        graph_links=Links() if scenario.topology is None else scenario.topology.links,
        attack=attack,
    )


def changes_of(scenario: Scenario, world: World) -> Changes:
    """Who of the world's clients joins late, and whose data change, drawn from its seed."""
    run, late = scenario.run, frozenset[int]()
    if run.joining:
        count = min(max(round(run.joining * world.num_clients), 1), world.num_clients - 1)
        drawn = world.seeds.generator("joining late").choice(world.num_clients, count, replace=False)
        late = frozenset(drawn.tolist())
    moved = None
    if run.moving:
        moved = exchanged(world.population, run.moving, rng=world.seeds.generator("moving"))
    return Changes(late, run.join_round, moved, run.move_round, run.return_round)


def _own_world(scenario: Scenario, client: ClientFile, *, workers: int) -> World:
    """The sites of a person's own file, each trained by its own trainer."""
    training = scenario.training
    sites = load_sites(Path(client.file), client.sites, client.settings, seed=scenario.run.seed)
    if sites.holds_back:
        raise ScenarioError(f"{client.file} keeps tensors at its sites, for which a run has no room; use: dag-acfl try")
    return World(
        sites.population(),
        sites,
        Seeds(scenario.run.seed),
        LocalTraining(training.epochs, training.initial_epochs),
        sites.trained_tensors,
        workers=workers or usable_cores(),
    )
