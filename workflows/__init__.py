"""Workflows: durable orders of effects. They hold ids and cursors, never jobs; rows are the truth.

This file imports nothing: the sandbox runs it before each workflow file, and what it passed through from here
would run outside, with clocks and random numbers unguarded.
"""
