"""The papers' models: ``catalogue`` knows what is in them, ``classifiers`` makes them of torch's modules."""
