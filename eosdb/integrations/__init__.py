"""Bridges between a file and other systems; most need an extra (docs/install.md).

Nothing else depends on a bridge, and no bridge depends on another, except `moving` on `relay`.
"""
