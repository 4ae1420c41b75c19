"""Pictures of graphs, label distributions and selections; matplotlib (extra ``report``) is loaded only to draw."""

from fl_simulator.plots.graph import draw_graph
from fl_simulator.plots.labels import draw_label_distribution
from fl_simulator.plots.similarities import draw_change_points, draw_similarities

__all__ = ["draw_change_points", "draw_graph", "draw_label_distribution", "draw_similarities"]
