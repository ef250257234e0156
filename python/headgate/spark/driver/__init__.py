"""On the driver: who produces, who consumes, what was lost; one coordinator per application."""
