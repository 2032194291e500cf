"""Bridges between a file and other systems; most need an extra (`pip install 'eosdb[…]'`).

Each can be deleted without a line changing elsewhere. None leans on another, except `moving` on `relay`.
"""
