"""Drivers: the one place that knows a runtime.

`interface` is the contract, `servicer` serves any driver over gRPC, `remote` is a driver that another process serves,
`registry` finds drivers by name, `conformance` is the suite that every driver passes. One package a runtime.
"""
