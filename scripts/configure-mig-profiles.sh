#!/bin/sh
# Partition the cards of nodes into MIG devices with named layouts.
#
# Writes the layout into the annotation run.ai/mig.config of each node and waits until the node agent has applied it or
# reports an error. Cards in use are not changed until they are free. Idempotent.
set -eu

# Name, then PROFILE:COUNT for every card. Edit these layouts or add your own.
layouts() {
    cat <<'END'
small   1g.10gb:7
medium  2g.20gb:2 3g.30gb:1
whole
END
}

annotation="run.ai/mig.config"
kubectl="${KUBECTL:-kubectl}"

usage() {
    cat <<END
Usage: $(basename "$0") LAYOUT NODE...              cut these nodes
       $(basename "$0") LAYOUT --selector KEY=VALUE   cut the nodes with this label
       $(basename "$0") LAYOUT --all                cut every node whose cards can be cut
       $(basename "$0") --list                      show the layouts

  --devices 0,1      only these cards of each node; all others stay as they are
  --dry-run          show what would be written, and write nothing
  --timeout SECONDS  how long to wait for the agents (default 120)
  --no-wait          do not wait
END
}

fail() {
    echo "$(basename "$0"): $1" >&2
    exit 2
}

layout="" nodes="" selector="" devices="all" dry_run="" timeout=120 wait="yes"
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage; exit 0 ;;
        --list) layouts; exit 0 ;;
        --all) selector="nvidia.com/mig.capable=true" ;;
        --dry-run) dry_run="yes" ;;
        --no-wait) wait="" ;;
        -l | --selector | --devices | --timeout)
            [ $# -ge 2 ] || fail "$1 needs a value; see --help"
            case "$1" in
                --devices) devices="[$2]" ;;
                --timeout) timeout="$2" ;;
                *) selector="$2" ;;
            esac
            shift ;;
        -*) fail "$1 is not known; see --help" ;;
        *) if [ -z "$layout" ]; then layout="$1"; else nodes="$nodes $1"; fi ;;
    esac
    shift
done
case "$timeout" in "" | *[!0-9]*) fail "--timeout $timeout: write whole seconds, such as 120" ;; esac

# The line of the chosen layout, without its name.
chosen() {
    layouts | while read -r name profiles; do
        [ "$name" = "$layout" ] && echo "found $profiles"
    done
}

names() {
    layouts | while read -r name _; do printf ' %s' "$name"; done
}

[ -n "$layout" ] || { usage >&2; exit 2; }
line=$(chosen) || true
[ -n "$line" ] || fail "no layout is called $layout; there are:$(names)"
[ -n "$nodes$selector" ] || fail "which nodes? Name them, or give --selector KEY=VALUE or --all"
[ -z "$nodes" ] || [ -z "$selector" ] || fail "name nodes or select them, not both"

# The value of the annotation.
text() {
    printf 'version: v1\nmig-configs:\n  selected:\n  - devices: %s\n' "$devices"
    # shellcheck disable=SC2086 # the profiles are words
    set -- ${line#found}
    if [ $# -eq 0 ]; then
        printf '    mig-enabled: false\n'
        return
    fi
    printf '    mig-enabled: true\n    mig-devices:\n'
    for profile in "$@"; do printf '      %s: %s\n' "${profile%:*}" "${profile##*:}"; done
}
wanted=$(text)
sum="sha256sum"
command -v sha256sum >/dev/null 2>&1 || sum="shasum -a 256"
hash=$(printf '%s' "$wanted" | $sum | cut -c1-16)

# One field of a node; empty if it is not set.
field() {
    "$kubectl" get node "$1" -o "jsonpath=$2"
}

if [ -n "$selector" ]; then
    nodes=$("$kubectl" get nodes -l "$selector" -o 'jsonpath={range .items[*]}{.metadata.name}{"\n"}{end}')
    [ -n "$nodes" ] || fail "no node has the label $selector"
fi

[ -z "$dry_run" ] || printf '%s would be:\n%s\n' "$annotation" "$wanted"
for node in $nodes; do
    now=$(field "$node" '{.metadata.annotations.run\.ai/mig\.config}') || exit 2
    if [ "$now" = "$wanted" ]; then
        echo "$node: layout $layout is already requested"
    elif [ -n "$dry_run" ]; then
        echo "$node: would request layout $layout"
    else
        "$kubectl" annotate node "$node" --overwrite "$annotation=$wanted" >/dev/null || exit 2
        echo "$node: requested layout $layout"
    fi
done
[ -z "$dry_run" ] && [ -n "$wait" ] || exit 0

# State of the requested layout on a node: success, failed, or another value.
state() {
    labels=$(field "$1" '{.metadata.labels.nvidia\.com/mig\.config\.hash} {.metadata.labels.nvidia\.com/mig\.config\.state}')
    if [ "${labels% *}" = "$hash" ]; then echo "${labels##* }"; else echo "unseen"; fi
}

why() {
    field "$1" '{.status.conditions[?(@.type=="MIGLayoutApplied")].message}'
}

deadline=$(($(date +%s) + timeout))
left="$nodes" bad=0
while [ -n "$left" ]; do
    waiting=""
    for node in $left; do
        case "$(state "$node")" in
            success) echo "$node: layout applied" ;;
            failed) bad=1; echo "$node: failed: $(why "$node")" >&2 ;;
            *) waiting="$waiting $node" ;;
        esac
    done
    left="$waiting"
    [ -n "$left" ] || break
    if [ "$(date +%s)" -ge "$deadline" ]; then
        bad=1
        for node in $left; do
            if [ "$(state "$node")" = "unseen" ]; then
                echo "$node: no reaction within $timeout s; is \`croupier node\` running there?" >&2
            else
                echo "$node: not applied within $timeout s: $(why "$node")" >&2
            fi
        done
        break
    fi
    sleep 1
done
exit $bad
