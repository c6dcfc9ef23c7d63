"""Entities and the graph of what is named together: extractors, aliases, building, walking."""
