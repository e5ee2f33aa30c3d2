"""From a graph to a plan: op functions are run on shapes, and record dispatches."""
