"""Models with published weights: their definitions, and the readers of the files.

Packages that carry weights are found, not imported: their code needs more than
we install.
"""
