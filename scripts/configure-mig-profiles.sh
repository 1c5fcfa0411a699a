#!/bin/sh
# Partition the cards of nodes into MIG devices with named layouts.
#
# Writes the layout into the annotation run.ai/mig.config of each node and waits until the node agent has applied it and
# the kubelet offers every device, or one of them reports an error. Cards in use are not changed until they are free.
# Idempotent. Exit code 1 if a node is not complete, with the reason; 2 for a wrong command line.
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
  --timeout SECONDS  how long to wait for the agents and kubelets (default 120)
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

# What the kubelet offers and what the agent has made of it, if they differ: "nvidia.com/mig-1g.10gb 21 of 28". Devices
# of cards in pools have the resources of their pools and cannot be compared, so a node with pools is complete.
missing() {
    node_labels=$(field "$1" '{.metadata.labels}')
    case "$node_labels" in *'"pool.gpu.deckhouse.io/'*) return ;; esac
    whole="no"
    if [ "$line" = "found " ] && [ "$devices" = "all" ]; then whole="yes"; fi
    {
        echo "$node_labels" | tr ',{}' '\n' |
            sed -n -e 's|^"\(nvidia.com/mig-[^"]*\)\.count":"\([0-9]*\)"$|made \1 \2|p' \
                -e 's|^"\(nvidia.com/gpu\)\.count":"\([0-9]*\)"$|whole \1 \2|p'
        field "$1" '{.status.allocatable}' | tr ',{}' '\n' |
            sed -n 's|^"\(nvidia.com/mig-[^"]*\)":"\([0-9]*\)"$|has \1 \2|p; s|^"\(nvidia.com/gpu\)":"\([0-9]*\)"$|gpu \1 \2|p'
    } | awk -v whole="$whole" '
        $1 == "made" || ($1 == "whole" && whole == "yes") { made[$2] = $3; all[$2] = 1 }
        $1 == "has" || ($1 == "gpu" && whole == "yes") { has[$2] = $3; all[$2] = 1 }
        END {
            for (name in all)
                if (has[name] + 0 != made[name] + 0) {
                    printf "%s%s %d of %d", separator, name, has[name], made[name]
                    separator = ", "
                }
        }'
}

deadline=$(($(date +%s) + timeout))
left="$nodes" bad=0
while [ -n "$left" ]; do
    waiting=""
    for node in $left; do
        case "$(state "$node")" in
            success)
                if [ -z "$(missing "$node")" ]; then
                    echo "$node: layout applied, and the kubelet offers every device"
                else
                    waiting="$waiting $node"
                fi ;;
            failed) bad=1; echo "$node: failed: $(why "$node")" >&2 ;;
            *) waiting="$waiting $node" ;;
        esac
    done
    left="$waiting"
    [ -n "$left" ] || break
    if [ "$(date +%s)" -ge "$deadline" ]; then
        bad=1
        for node in $left; do
            case "$(state "$node")" in
                unseen) echo "$node: no reaction within $timeout s; is \`croupier node\` running there?" >&2 ;;
                success) echo "$node: applied, but after $timeout s the kubelet offers only $(missing "$node")" >&2 ;;
                *) echo "$node: not applied within $timeout s: $(why "$node")" >&2 ;;
            esac
        done
        break
    fi
    sleep 1
done
exit $bad
