"""What a run is judged by: accuracy, clusters, and costs beside DAG-ACFL's formulas."""

from fl_simulator.metrics.accuracy import AccuracySummary, reached_at, summarise_accuracy
from fl_simulator.metrics.allocation import gini_index, label_gini
from fl_simulator.metrics.clustering import (
    ClusterSummary,
    SelectionSummary,
    judge_approvals,
    judge_groups,
    judge_selections,
)
from fl_simulator.metrics.costs import (
    TABLE_III,
    TABLE_IV,
    CommunicationComparison,
    CommunicationFormula,
    RoundSizes,
    StorageFormula,
    StorageSizes,
    compare_communication,
    summarise_costs,
)

__all__ = [
    "TABLE_III",
    "TABLE_IV",
    "AccuracySummary",
    "ClusterSummary",
    "CommunicationComparison",
    "CommunicationFormula",
    "RoundSizes",
    "SelectionSummary",
    "StorageFormula",
    "StorageSizes",
    "compare_communication",
    "gini_index",
    "judge_approvals",
    "judge_groups",
    "judge_selections",
    "label_gini",
    "reached_at",
    "summarise_accuracy",
    "summarise_costs",
]
