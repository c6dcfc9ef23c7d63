#!/usr/bin/env bash
# The main job on real input: this project's own documents, a real local model, a budget that is shown to hold.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CTXKIT_STORE="sqlite:///$folder/demo.db"

question=${1:-"What does BudgetError say when the mandatory parts do not fit?"}
window=2048
reserve=160

show() {
  printf '\n$ ctxkit'
  printf ' %q' "$@"
  printf '\n'
  ctxkit "$@"
}

show ingest README.md docs
show ask "$question" --model local --budget "$window" --reserve "$reserve" --max-tokens "$reserve" --timeout 600 --explain | tee "$folder/answer.txt"

# Two counts that come from different places must agree: what the model was fed, and what the assembler had promised.
python - "$folder/answer.txt" "$window" "$reserve" <<'PYTHON'
import re
import sys

text, window, reserve = open(sys.argv[1], encoding="utf-8").read(), int(sys.argv[2]), int(sys.argv[3])


def number(found: str) -> int:
    return int(found.replace(",", ""))


fed, answered = map(number, re.search(r"([\d,]+) prompt \+ ([\d,]+) answer tokens", text).groups())
promised = number(re.search(r"^([\d,]+) of [\d,]+ tokens", text, re.MULTILINE).group(1))
holds = fed == promised <= window - reserve and fed + answered <= window
print(
    f"\nThe budget {'held' if holds else 'DID NOT HOLD'}: the assembler counted {promised:,} tokens, the model was fed {fed:,}, "
    f"{window - reserve:,} were allowed; with the answer's {answered:,} that is {fed + answered:,} of {window:,}."
)
sys.exit(not holds)
PYTHON
