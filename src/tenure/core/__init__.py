"""The pure core: values in, values out. No I/O, no clock, no event loop.

Every rule of the life cycle is here, so that engines only store and workers only act.
"""
