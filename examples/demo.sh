#!/usr/bin/env bash
# The main job on real input: this project's own documents, a real local model, a budget that is shown to hold.
#
# The model is SmolLM2-135M-Instruct: small enough for any machine, and no oracle. It answers best from little text, so
# the window here is small on purpose, and the pages that explain are read, not the command reference; another question
# is the script's first argument.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CTXKIT_STORE="sqlite:///$folder/demo.db"

question=${1:-"How are tenants kept apart?"}
window=384
reserve=48

show() {
  printf '\n$ ctxkit'
  printf ' %q' "$@"
  printf '\n'
  ctxkit "$@"
}

echo "The model has 135 million parameters: it runs on any machine, and it is no oracle."
show ingest README.md docs/laws.md docs/concepts docs/quickstart.md docs/decisions
show templates push answer examples/answer.template
show ask "$question" --model local --template answer --compress --candidates 4 --budget "$window" \
  --reserve "$reserve" --max-tokens "$reserve" --stop $'\n\n' --timeout 600 --explain | tee "$folder/answer.txt"

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
    f"\nThe budget {'held' if holds else 'DID NOT HOLD'}: the assembler promised {promised:,} tokens and the model "
    f"was fed {fed:,}, of {window - reserve:,} allowed; with the answer's {answered:,} that is {fed + answered:,} of {window:,}."
)
sys.exit(not holds)
PYTHON
