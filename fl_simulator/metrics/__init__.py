"""What a run is judged by: accuracy, clusters, and costs beside DAG-ACFL's formulas."""
