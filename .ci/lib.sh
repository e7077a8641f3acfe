# Sourced by every stage: goes to the root of the repository, keeps count, sets time limits.
# A stage runs `check NAME SECONDS COMMAND..` once for each thing it checks, and ends with `finish`.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0
passed=0 failed=0

# Runs a command with a limit of time and without input; counts it as passed when it exits with zero.
check() {
  local name=$1 limit=$2 code=0
  shift 2
  printf -- '--- %s: %s\n' "$name" "$*"
  timeout --kill-after=10 "$limit" "$@" </dev/null || code=$?
  case $code in
    0) passed=$((passed + 1)) ;;
    124 | 137) failed=$((failed + 1)); printf -- '--- %s: FAILED, not done after %s s\n' "$name" "$limit" ;;
    *) failed=$((failed + 1)); printf -- '--- %s: FAILED (%s)\n' "$name" "$code" ;;
  esac
}

# A failure that is no command's.
fail() {
  failed=$((failed + 1))
  printf -- '--- FAILED: %s\n' "$1"
}

# Something that is not there and counts neither way.
skip() {
  printf -- '--- SKIPPED: %s\n' "$1"
}

finish() {
  printf '%s passed, %s failed\n' "$passed" "$failed"
  [ "$failed" = 0 ]
  exit
}
