"""Gates: a run asks people, or the program that asked it, and waits for the answer.

Begin with kind.py, which says how kinds of gates differ. asking.py opens a gate and waits at it, answers.py takes an
answer. What a run knows of its gates is in run/control/gates.py.
"""
