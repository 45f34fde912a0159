"""Compiled loops over graphs in compressed sparse rows (CSR).

Graphs are concatenated: graph ``g`` has nodes ``ptr[g]`` to ``ptr[g + 1] - 1``, and node ``v``
receives messages from ``column[row_ptr[v]:row_ptr[v + 1]]``, in ascending order. Random choices
come from the ``numpy.random.Generator`` passed in, which numba advances in place.

Numba does not check bounds: indices are validated when a batch is created.
"""
