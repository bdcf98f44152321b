"""Tests of the console's parts."""
