"""What the suite's tests may leave on the CPU: an op with the partitioner's reason.

Anything else left there fails the run. `docs/conformance.md` has the same list,
with the explanation given here.
"""

EXCEPTIONS = {
    "aten.mean.dim: a tensor must not be float64, got float64": (
        "the test asks for a float64 result, which no GPU type holds"
    ),
}
