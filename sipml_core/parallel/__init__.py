"""From an operation graph to the tasks of a whole job: partition, placement, lowering."""
