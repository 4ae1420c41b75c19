"""Trust: rules and figures by which participants bound, see and undo what a bad one does. Pure, as all of the core."""
