"""An attacker that speaks the protocol: it knows every message that a client may send, and sends the worst of each.

    scenes   one short conversation each, made from a seed alone: jobs, garbage, memory, questions, greed, doors, zmtp
    attack   threads that play one scene after the other, in rounds with quiet ones between them
    honest   a program beside it, whose every job is to end rightly and in time
    books    what the pool holds, against what it says that it holds
    mutants  the pool with one check taken out, which the attacker is to notice

A scene knows what it has done wrong, so it asserts what it is told: the attacker is the judge of each answer, too.
"""
