"""Where to run it: fleets packed, trained in this process, in several, on a GPU or on a Ray cluster."""
