# The steps, and what they share.

# Addresses of the cards, in the order of their slots.
cards() {
    for function in /sys/bus/pci/devices/*; do
        [ "$(cat $function/vendor):$(cat $function/device)" = 0x1d1d:0x4d52 ] && basename $function
    done
}
# What the kernel said while it started.
dmesg -r -c > /tmp/boot.log
set -- $(cards)
A=$1
B=$2
# A word of the kernel's command line.
word() { sed -n "s/.*\b$1=\([a-z0-9_]*\).*/\1/p" /proc/cmdline; }
CYCLES=$(word cycles)
STEPS=$(word steps)
# Seconds that a step may take: an emulated machine is slow.
USUAL_LIMIT=150
LIMIT=$USUAL_LIMIT
# Addresses of the ports: nothing publishes them for a PCI function.
TO_A="--mac 02:4d:52:00:00:01 --ip 10.0.0.1"
TO_B="--mac 02:4d:52:00:00:02 --ip 10.0.0.2"

now() { cut -d' ' -f1 /proc/uptime; }

step() {
    name=$1
    shift
    echo "begin $name"
    begin=$(now)
    rm -f /tmp/code
    : > /tmp/step
    # A shell of its own, so that a failure inside ends the step and not the run. Not as a condition: there `-e` is void.
    (
        (set -e -o pipefail; "$@")
        echo $? > /tmp/code.new
        mv /tmp/code.new /tmp/code
    ) >> /tmp/step 2>&1 &
    body=$!
    # Looks are counted, not seconds: while the host has no time for the guest, the guest's clock goes on.
    looks=$((LIMIT * 10))
    until [ -e /tmp/code ] || [ $looks = 0 ]; do
        usleep 100000
        looks=$((looks - 1))
    done
    if [ -e /tmp/code ]; then
        wait $body
    else
        hung >> /tmp/step
        kill -9 $body 2> /dev/null
        echo 1 > /tmp/code
    fi
    case $(cat /tmp/code) in 0) result=ok ;; *) result=failed ;; esac
    if [ $result = failed ]; then
        sed "s/^/| /" /tmp/step
        # What it has started is not in the way of the next.
        killall -9 mprdma vm_guest 2> /dev/null
    fi
    echo "step $name $result $(echo "$begin $(now)" | awk '{ printf "%.2f", $2 - $1 }')"
}

# Says what does not come to its end, and ends it.
hung() {
    echo "hung: the step goes on after $LIMIT s"
    for process in /proc/[0-9]*; do
        case $(cat $process/comm 2> /dev/null) in
            mprdma | vm_guest) echo "$(tr '\0' ' ' < $process/cmdline): in $(cat $process/wchan)" ;;
        esac
    done
    killall -9 mprdma vm_guest 2> /dev/null
}

fail() {
    echo "$*"
    exit 1
}

# A command fails with this exit code and says this.
refused() {
    code=$1
    words=$2
    shift 2
    set +e
    "$@" > /tmp/refused 2>&1
    got=$?
    set -e
    cat /tmp/refused
    [ $got = $code ] || fail "exit code $got instead of $code"
    grep -q -F -e "$words" /tmp/refused || fail "it does not say: $words"
}

driver() { basename "$(readlink /sys/bus/pci/devices/$1/driver)"; }

group() { basename "$(readlink /sys/bus/pci/devices/$1/iommu_group)"; }

as_user() { su user -c "$*"; }

# Two functions of the class of InfiniBand controllers, each alone behind the IOMMU.
boot() {
    [ -n "$B" ] || fail "there are not two cards: $A $B"
    for card in $A $B; do
        [ "$(cat /sys/bus/pci/devices/$card/class)" = 0x020700 ]
        [ "$(ls /sys/bus/pci/devices/$card/iommu_group/devices)" = $card ]
    done
    grep "DMAR: Intel(R) Virtualization Technology for Directed I/O" /tmp/boot.log
    if grep -E '^<[0-4]>' /tmp/boot.log | grep -E "$A|$B|vfio|DMAR|iommu"; then fail "the kernel complains"; fi
}

unbound_is_explained() {
    refused 3 "$A: no driver is bound to it, not vfio-pci; run \`sudo mprdma bind $A\`" mprdma info -d $A
    for command in "info -d" bind unbind; do
        refused 3 "0000:7f:00.0: no such device; \`mprdma devices\` lists the cards" mprdma $command 0000:7f:00.0
    done
}

# A card that Linux's pci-stub has, because the operator chose that.
other_driver() {
    override=/sys/bus/pci/devices/$A/driver_override
    echo pci-stub > $override
    echo $A > /sys/bus/pci/drivers_probe
    [ "$(driver $A)" = pci-stub ]
    refused 3 "$A: the driver pci-stub is bound to it, not vfio-pci; run \`sudo mprdma bind $A\`" mprdma info -d $A
    mprdma devices | grep "$A .*driver pci-stub; .mprdma bind $A. makes it usable"
    mprdma bind $A
    [ "$(driver $A)" = vfio-pci ]
    mprdma unbind $A
    [ "$(driver $A)" = pci-stub ]
    [ "$(cat $override)" = pci-stub ]
    echo > $override
    echo $A > /sys/bus/pci/drivers/pci-stub/unbind
}

no_iommu() {
    [ -z "$(ls /sys/kernel/iommu_groups 2> /dev/null)" ]
    for command in "info -d" bind "bench write-bw $TO_A -d"; do
        refused 3 "$A: the function has no IOMMU group: the IOMMU is off; switch on VT-d or AMD-Vi in the firmware, boot \
Linux with \`intel_iommu=on\` (Intel), and look for \`ls /sys/kernel/iommu_groups\`" mprdma $command $A
    done
    [ "$(cat /sys/bus/pci/devices/$A/driver_override)" = "(null)" ]
}

bind() {
    for card in $A $B $A; do mprdma bind $card; done
    [ "$(driver $A)" = vfio-pci ]
    [ "$(driver $B)" = vfio-pci ]
}

no_permission() {
    node=/dev/vfio/$(group $A)
    refused 3 "$A: no permission to open $node; run \`sudo chown \$USER $node\`, or install the udev rule" \
        as_user mprdma info -d $A
    refused 3 "$A: only root may change a function's driver; run \`sudo mprdma unbind $A\`" as_user mprdma unbind $A
}

devices() {
    mprdma devices | tee /tmp/devices
    for card in $A $B; do grep -q "$card .*free" /tmp/devices; done
}

info() {
    for card in $A $B; do
        mprdma --json info -d $card | tee /tmp/info
        grep -q '"backend": "vfio"' /tmp/info
        grep -q '"pci_id": "1d1d:4d52"' /tmp/info
        grep -q '"vectors": 8' /tmp/info
    done
}

info_as_user() {
    chown user /dev/vfio/$(group $A)
    as_user mprdma info -d $A
    chown root /dev/vfio/$(group $A)
}

# Starts `mprdma hold` behind the command $before, if there is one, and waits until it has the card. What an earlier one
# has said must not count.
hold() {
    rm -f /tmp/hold
    $before mprdma hold "$@" > /tmp/hold 2>&1 &
    holder=$!
    until grep -q held /tmp/hold 2> /dev/null; do
        [ -e /proc/$holder ] || fail "it ended: $(cat /tmp/hold)"
        sleep 0.1
    done
}

# A card that a process has: others ask that process, and nobody takes the card from it.
busy() {
    hold -d $A
    mprdma info -d $A | grep "holder .*mprdma hold"
    refused 3 "in use by" mprdma bench write-bw -d $A $TO_A 127.0.0.1
    refused 3 "in use by" mprdma unbind $A
    kill $holder
    wait $holder || true
}

# Each card has a node of its own, the first node 0. Its rings and its polling thread are there; the rings also when a
# taskset keeps the thread away.
near() {
    [ "$(cat /sys/devices/system/node/has_memory)" = 0-1 ]
    held_near $A 0 1 0
    held_near $B 1 0 1
    held_near $A 0 1 1 taskset 2
    held_near $B 1 0 0 taskset 1
    for node in 0 1; do echo 4 > /sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages; done
    vm_guest hugepages $A $B
    for node in 0 1; do echo 0 > /sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages; done
}

# Holds a card: its node, the other, the processors of the thread, a command before it.
held_near() {
    card=$1 node=$2 other=$3 cpus=$4
    shift 4
    before=$*
    hold -d $card
    mprdma --json info -d $card | grep "\"numa_node\": $node"
    grep memfd:mprdma /proc/$holder/numa_maps | tee /tmp/maps
    grep -q "prefer.*:$node .* N$node=" /tmp/maps
    if grep " N$other=" /tmp/maps; then fail "memory on node $other"; fi
    grep Cpus_allowed_list /proc/$holder/status
    [ "$(awk '/^Cpus_allowed_list/ { print $2 }' /proc/$holder/status)" = $cpus ] || fail "not on processor $cpus"
    kill $holder
    wait $holder || true
}

queue_pairs() {
    hold -d $A
    for n in 1 2 3; do mprdma qp create -d $A; done
    [ "$(mprdma --json qp list -d $A | grep -c '"qpn"')" = 3 ]
    mprdma qp show -d $A 2
    mprdma qp destroy -d $A 2
    [ "$(mprdma --json qp list -d $A | grep -c '"qpn"')" = 2 ]
    kill $holder
    wait $holder || true
}

# A file of so many KiB from one card to the other.
file() {
    rm -f /tmp/received
    head -c $(($1 * 1024)) /dev/urandom > /tmp/sent
    mprdma recv-file -d $B $TO_B --buffer 4M --bind 127.0.0.1 /tmp/received > /tmp/receiver 2>&1 &
    receiver=$!
    until_listening $receiver
    mprdma send-file -d $A $TO_A /tmp/sent 127.0.0.1
    wait $receiver || fail "receiver: $(cat /tmp/receiver)"
    sha256sum /tmp/sent /tmp/received
    [ "$(sha256sum < /tmp/sent)" = "$(sha256sum < /tmp/received)" ]
}

# Port 18515 is 0x4853.
until_listening() {
    until grep -q ":4853 .* 0A " /proc/net/tcp; do
        kill -0 $1 2> /dev/null || return 0
        sleep 0.1
    done
}

bandwidth() {
    mprdma bench write-bw -d $B $TO_B --bind 127.0.0.1 > /tmp/receiver 2>&1 &
    receiver=$!
    until_listening $receiver
    mprdma bench write-bw -d $A $TO_A -s 65536 -n 16 --report_gbits 127.0.0.1 | tee /tmp/bandwidth
    wait $receiver || fail "receiver: $(cat /tmp/receiver)"
    echo "> bandwidth $(awk '$1 == 65536 { print $4 }' /tmp/bandwidth) Gb/s of the card's time" > /dev/console
}

# Linux resets the function, while it is free and while it is in use.
flr() {
    grep -q flr /sys/bus/pci/devices/$A/reset_method
    for card in $A $B; do echo 1 > /sys/bus/pci/devices/$card/reset; done
    file 64
}

rebind() {
    for card in $A $B; do
        mprdma unbind $card
        [ ! -e /sys/bus/pci/devices/$card/driver ]
        [ "$(cat /sys/bus/pci/devices/$card/driver_override)" = "(null)" ]
    done
    refused 3 "run \`sudo mprdma bind $A\`" mprdma info -d $A
    for card in $A $B; do mprdma bind $card; done
    file 64
}

# Rounds of kill, reset, unbind and bind, and what they leave behind in the guest (examples/vm_guest/cycles.rs) and in the
# simulator, which whoever started the guest looks at.
cycles() {
    look before_cycles
    vm_guest cycles $A $B $1 > /tmp/cycles
    look after_cycles
    tail -n 4 /tmp/cycles | sed "s/^/> /" > /dev/console
}

look() {
    echo "look $1" > /dev/console
    read -t 60 answer < /dev/console || fail "nobody looks"
}

unbind_all() {
    for card in $A $B $A; do mprdma unbind $card; done
    [ "$(ls /dev/vfio)" = vfio ]
}

# No message of the kernel since the boot is a warning or worse, but for those of a slow machine's clocks.
no_warning() {
    dmesg -r > /tmp/messages
    echo "$(wc -l < /tmp/messages) messages"
    if grep -E '^<[0-4]>' /tmp/messages | grep -v -E 'clocksource: |hpet: Lost|hrtimer: interrupt took|sched: DL replenish lagged'; then fail "the kernel warns"; fi
    if grep -E 'WARNING:|BUG:|Call Trace|Oops|hung task' /tmp/messages; then fail "the kernel is unwell"; fi
}
