"""Compiled loops over graphs in compressed rows.

Graphs lie side by side: graph ``g`` has the nodes ``ptr[g]`` to ``ptr[g + 1] - 1``, and node ``v``
receives messages from ``column[row_ptr[v]:row_ptr[v + 1]]``, in ascending order. Every kernel takes
this representation and returns it. Random choices come from the ``numpy.random.Generator`` passed
in, which numba advances in place, so that a seed decides everything.

Numba checks no bounds: indices are validated where a batch is made.
"""
