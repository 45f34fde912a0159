"""What runs leave behind, as data, and what is computed from it. Nothing here needs torch.

Import the modules directly.
"""
