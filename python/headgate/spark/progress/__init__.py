"""How far a run is: statistics, the slowest stage, and the surfaces that show them."""
