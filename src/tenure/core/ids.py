"""Job ids: UUID version 7, made by the client, so that a repeated insert is no twin."""

from __future__ import annotations


def uuid7(milliseconds: int, counter: int, entropy: int) -> str:
    """The UUIDv7 text of a Unix time in ms (48 bits), a counter (26 bits) and 48 random bits.

    The counter follows the time, so ids of one source sort in the order they were made.
    """
    late, early = milliseconds >> 16 & 0xFFFF_FFFF, milliseconds & 0xFFFF
    versioned = 0x7000 | counter >> 14 & 0xFFF
    variant = 0x8000 | counter & 0x3FFF
    return f"{late:08x}-{early:04x}-{versioned:04x}-{variant:04x}-{entropy & 0xFFFF_FFFF_FFFF:012x}"
