"""What a run is judged by: accuracy, clusters, and costs beside DAG-ACFL's formulas."""

from fl_simulator.metrics.accuracy import summarise_accuracy
from fl_simulator.metrics.allocation import gini_index, label_gini
from fl_simulator.metrics.clustering import judge_approvals, judge_groups, judge_selections
from fl_simulator.metrics.costs import COST_FORMULAS, Sizes, summarise_costs

__all__ = [
    "COST_FORMULAS",
    "Sizes",
    "gini_index",
    "judge_approvals",
    "judge_groups",
    "judge_selections",
    "label_gini",
    "summarise_accuracy",
    "summarise_costs",
]
