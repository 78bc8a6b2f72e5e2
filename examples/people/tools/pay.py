"""Enter a payment into outputs/payments.csv: arguments as JSON on standard input. Run twice it would be paid twice."""

import csv
import json
import sys

call = json.load(sys.stdin)
with open("outputs/payments.csv", "a", encoding="utf-8", newline="") as payments:
    csv.writer(payments).writerow([call["to"], f"{call['amountEur']:.2f}"])
sys.stdout.write(f"paid {call['amountEur']:.2f} EUR to {call['to']}\n")
