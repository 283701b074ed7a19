"""Job ids: UUID version 7, made by the client, so that a repeated insert is no twin."""

from __future__ import annotations


def uuid7(milliseconds: int, counter: int, entropy: int) -> str:
    """The UUIDv7 text of a Unix time in ms (48 bits), a counter (26 bits) and 48 random bits.

    The counter follows the time, so ids of one source sort in the order they were made.
    """
    high, low = counter >> 14, counter & 0x3FFF
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80
    value |= 0x7 << 76 | high << 64 | 0b10 << 62 | low << 48 | entropy & 0xFFFF_FFFF_FFFF
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
