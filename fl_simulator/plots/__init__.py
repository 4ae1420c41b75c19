"""Pictures of graphs, label distributions and selections; matplotlib (extra ``report``) is loaded only to draw."""
