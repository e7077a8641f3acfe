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

# Runs release tests with output. Each line of it that says what was covered counts as passed and is kept in "$covered";
# each failed test counts as failed, and then all of the output is shown.
checked() { # NAME SECONDS LINES CARGO_FLAGS.. -- TEST_FLAGS..
  local name=$1 limit=$2 lines=$3 code=0 p f log
  shift 3
  log=$(mktemp) || exit 2
  printf -- '--- %s: cargo test --release %s --nocapture\n' "$name" "$*"
  local build=()
  for p in "$@"; do [ "$p" != -- ] && build+=("$p") || break; done
  # Building has a limit of its own.
  timeout --kill-after=10 600 cargo test --release "${build[@]}" --no-run </dev/null >"$log" 2>&1 || code=$?
  if [ "$code" = 0 ]; then
    timeout --kill-after=10 "$limit" cargo test --release "$@" --nocapture </dev/null >"$log" 2>&1 || code=$?
  fi
  [ "$code" = 0 ] || cat "$log"
  p=$(grep -E "^(test .* \.\.\. )?($lines)" "$log" | sed 's/^test .* \.\.\. //' | tee -a "$covered" | wc -l)
  [ "$code" != 0 ] || tail -n "$p" "$covered"
  f=$(sed -n 's/^test result: .* passed; \([0-9]*\) failed;.*/\1/p' "$log" | awk '{ f += $1 } END { print f + 0 }')
  rm -f "$log"
  passed=$((passed + p)) failed=$((failed + f))
  [ "$p" -gt 0 ] || fail "$name: nothing was covered"
  [ "$code" = 0 ] || [ "$f" -gt 0 ] || fail "$name: cargo test ended with $code (124: not done in time)"
}

# Runs a command that must fail and whose output must match a pattern: a planted fault, which shows that the checker of
# the stage sees what it looks for.
check_reports() {
  local name=$1 limit=$2 pattern=$3 out code=0
  shift 3
  printf -- '--- %s: %s (must report: %s)\n' "$name" "$*" "$pattern"
  out=$(timeout --kill-after=10 "$limit" "$@" </dev/null 2>&1) || code=$?
  if [ "$code" = 0 ]; then
    fail "$name: the planted fault was not noticed"
  elif ! grep -m 1 -E -- "$pattern" <<<"$out"; then
    printf '%s\n' "$out"
    fail "$name: ended with $code, but not because of the planted fault"
  else
    passed=$((passed + 1))
  fi
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
