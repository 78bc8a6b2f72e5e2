"""Gates: a run asks people, or the program that started it, and waits for the answer.

Begin with kind.py, which defines the kinds of gates. asking.py opens a gate and waits at it; answers.py accepts an
answer. run/control/gates.py holds the state of a run's gates.
"""
