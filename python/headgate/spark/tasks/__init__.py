"""In Spark's tasks: the bodies of producers, consumers and stream workers."""
