"""Words that carry so little that a question made of others is better asked without them."""

from __future__ import annotations

__all__ = ["ENGLISH_STOP_WORDS"]

# The articles, pronouns, auxiliaries, conjunctions and prepositions of English grammar's closed classes.
ENGLISH_STOP_WORDS = frozenset(
    """
    a an the and or but nor if then than that this these those there here to of in on at by for from with without
    into onto over under about between through during before after above below up down out off as is are was were be
    been being am do does did doing have has had having can could will would shall should may might must i me my we
    us our you your he him his she her it its they them their what which who whom whose when where why how not no so
    such very too also just only own same other some any each both all more most much many few
    """.split()  # noqa: SIM905
)
