"""From an exported program to the bytes of a delegate: which nodes, as what graph."""
