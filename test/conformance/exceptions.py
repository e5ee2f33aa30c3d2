"""What the suite's tests may leave on the CPU, and which of them may be skipped.

Anything else left there or skipped fails the run. `docs/conformance.md` has the
same lists, with the explanations given here.
"""

# An op with the partitioner's reason.
EXCEPTIONS = {
    "aten.mean.dim: a tensor must not be float64, got float64": (
        "the test asks for a float64 result, which no GPU type holds"
    ),
}

_MISFIT = "eager refuses the model: 67 features, inputs of 64"
_PADDING = "eager refuses the model: padding of more than half the window"
# A test's name.
SKIPPED = {
    "test_linear_batch_sizes": _MISFIT,
    "test_linear_dtype": _MISFIT,
    "test_linear_leading_batch": _MISFIT,
    "test_linear_no_bias": _MISFIT,
    "test_linear_no_bias_dtype": _MISFIT,
    "test_avgpool1d_padding": _PADDING,
    "test_avgpool2d_padding": _PADDING,
    "test_maxpool1d_padding": _PADDING,
    "test_maxpool2d_padding": _PADDING,
    "test_wavernn": "two recurrent layers over 12,000 steps, unrolled by the export",
}
