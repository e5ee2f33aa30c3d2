"""Passes that leave less to compute: constants, copies, what is computed twice."""
