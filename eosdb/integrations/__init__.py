"""Bridges between a file and other systems; most need an extra (docs/install.md).

Each can be deleted without changing a line elsewhere. None depends on another, except `moving` on `relay`.
"""
