# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts/test and scripts/sanitize: runs parts and notes how each ended. The caller sets
#   out      a folder for logs
#   results  a table, a row per part: label, exit code, seconds, base of meson's logs or "-";
#            scripts/count_results.py reads it
: "${out:?}" "${results:?}"

# step LABEL COMMAND…: a part that counts as one test.
step() {
    local label=$1 start=$SECONDS rc=0 log
    shift
    log=$out/${label//[^A-Za-z0-9]/-}.log
    printf -- '--- %s\n' "$label"
    "$@" >"$log" 2>&1 || rc=$?
    if [ "$rc" != 0 ] && [ "$rc" != 77 ]; then
        printf 'FAILED (exit code %s): %s\n' "$rc" "$*"
        tail -n 120 "$log"
    fi
    printf '%s\t%s\t%s\t-\n' "$label" "$rc" "$((SECONDS - start))" >>"$results"
    return "$rc"
}

configure() {
    local dir=$1
    shift
    if [ -f "$dir/build.ninja" ]; then
        meson configure "$dir" -Dbuildtype=debugoptimized -Db_ndebug=false "$@"
    else
        meson setup "$dir" -Dbuildtype=debugoptimized -Db_ndebug=false "$@"
    fi
}

# Called under "||", where set -e does not hold.
configure_and_compile() {
    configure "$@" && ninja -C "$1"
}

# build DIR OPTIONS…: configures (again) and compiles; one counted part.
build() {
    step "build $1" configure_and_compile "$@"
}

# run_tests LABEL DIR MESON-TEST-ARGUMENTS…: each test counts.
run_tests() {
    local label=$1 dir=$2 start=$SECONDS rc=0 base wrapped=
    shift 2
    base=testlog-${label//[^A-Za-z0-9]/-}
    # meson adds the wrapper's name.
    [[ $* != *--wrapper\ valgrind* ]] || wrapped=-valgrind
    printf -- '--- %s\n' "$label"
    rm -f "$dir/meson-logs/$base$wrapped."*
    meson test -C "$dir" --no-rebuild --quiet --logbase "$base" "$@" \
        </dev/null || rc=$?
    printf '%s\t%s\t%s\t%s\n' "$label" "$rc" "$((SECONDS - start))" "$dir/meson-logs/$base$wrapped" \
        >>"$results"
}
