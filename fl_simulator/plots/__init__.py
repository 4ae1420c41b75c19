"""Pictures of populations and runs; they need the extra ``plots``, and load matplotlib only when they draw."""

from fl_simulator.plots.clustering import draw_communities, draw_misclassified, draw_satisfaction
from fl_simulator.plots.curves import draw_curves, draw_worst_client
from fl_simulator.plots.deviations import draw_changes, draw_deviations
from fl_simulator.plots.experiment import draw_experiment, draw_populations
from fl_simulator.plots.graph import draw_graph
from fl_simulator.plots.labels import draw_label_distribution
from fl_simulator.plots.nodes import NodeSeries, draw_node_accuracy, draw_node_curves
from fl_simulator.plots.series import Series
from fl_simulator.plots.similarities import draw_change_points, draw_similarities
from fl_simulator.plots.trajectories import draw_collapse, draw_trajectories

__all__ = [
    "NodeSeries",
    "Series",
    "draw_change_points",
    "draw_changes",
    "draw_collapse",
    "draw_communities",
    "draw_curves",
    "draw_deviations",
    "draw_experiment",
    "draw_graph",
    "draw_label_distribution",
    "draw_misclassified",
    "draw_node_accuracy",
    "draw_node_curves",
    "draw_populations",
    "draw_satisfaction",
    "draw_similarities",
    "draw_trajectories",
    "draw_worst_client",
]
