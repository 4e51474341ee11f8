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
CYCLES=$(sed -n 's/.*\bcycles=\([0-9]*\).*/\1/p' /proc/cmdline)
# Addresses of the ports: nothing publishes them for a PCI function.
TO_A="--mac 02:4d:52:00:00:01 --ip 10.0.0.1"
TO_B="--mac 02:4d:52:00:00:02 --ip 10.0.0.2"

now() { cut -d' ' -f1 /proc/uptime; }

step() {
    name=$1
    shift
    begin=$(now)
    # A shell of its own, so that a failure inside ends the step and not the run. Not as a condition: there `-e` is void.
    (set -e -o pipefail; "$@") > /tmp/step 2>&1
    case $? in 0) result=ok ;; *) result=failed ;; esac
    [ $result = ok ] || sed "s/^/| /" /tmp/step
    echo "step $name $result $(echo "$begin $(now)" | awk '{ printf "%.2f", $2 - $1 }')"
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
    grep -q -e "$words" /tmp/refused || fail "it does not say: $words"
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
    refused 3 "run .sudo mprdma bind $A" mprdma info -d $A
    refused 3 "no such device" mprdma info -d 0000:7f:00.0
}

bind() {
    for card in $A $B $A; do mprdma bind $card; done
    [ "$(driver $A)" = vfio-pci ]
    [ "$(driver $B)" = vfio-pci ]
}

no_permission() {
    refused 3 "run .sudo chown .USER /dev/vfio/$(group $A)" as_user mprdma info -d $A
    refused 3 "sudo mprdma unbind $A" as_user mprdma unbind $A
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

# A card that a process has: others ask that process, and nobody takes the card from it.
busy() {
    mprdma hold -d $A > /tmp/hold 2>&1 &
    holder=$!
    until grep -q held /tmp/hold; do sleep 0.1; done
    mprdma info -d $A | grep "holder .*mprdma hold"
    refused 3 "in use by" mprdma bench write-bw -d $A $TO_A 127.0.0.1
    refused 3 "in use by" mprdma unbind $A
    kill $holder
    wait $holder || true
}

queue_pairs() {
    mprdma hold -d $A > /tmp/hold 2>&1 &
    holder=$!
    until grep -q held /tmp/hold; do sleep 0.1; done
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
    echo "bandwidth $(awk '$1 == 65536 { print $4 }' /tmp/bandwidth) Gb/s of the card's time" > /dev/console
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
    refused 3 "run .sudo mprdma bind $A" mprdma info -d $A
    for card in $A $B; do mprdma bind $card; done
    file 64
}

# Binds, uses, kills at a random point, resets and unbinds, and looks for what stays behind.
cycles() {
    pages=$(free_kib)
    n=0
    while [ $n -lt $1 ]; do
        n=$((n + 1))
        mprdma bench write-bw -d $B $TO_B --bind 127.0.0.1 > /dev/null 2>&1 &
        receiver=$!
        mprdma bench write-bw -d $A $TO_A -n 100000 127.0.0.1 > /dev/null 2>&1 &
        sender=$!
        usleep $(($(od -An -N2 -tu2 /dev/urandom) * 20))
        kill -9 $receiver $sender 2> /dev/null || true
        wait $receiver $sender || true
        card=$A
        [ $((n % 2)) = 0 ] || card=$B
        echo 1 > /sys/bus/pci/devices/$card/reset
        mprdma unbind $card > /dev/null
        mprdma bind $card > /dev/null 2>&1
    done
    mprdma info -d $A
    mprdma info -d $B
    [ ! -e /run/mprdma/$A.driver ]
    lost=$((pages - $(free_kib)))
    echo "$n cycles, $lost KiB less memory"
    [ $lost -lt 16384 ]
}

free_kib() {
    echo 3 > /proc/sys/vm/drop_caches
    awk '/^MemFree/ { print $2 }' /proc/meminfo
}

unbind_all() {
    for card in $A $B $A; do mprdma unbind $card; done
    [ "$(ls /dev/vfio)" = vfio ]
}

# No message of the kernel since the boot is a warning or worse, but for those of a slow machine's clocks.
no_warning() {
    dmesg -r > /tmp/messages
    echo "$(wc -l < /tmp/messages) messages"
    if grep -E '^<[0-4]>' /tmp/messages | grep -v -E 'clocksource: |hpet: Lost|hrtimer: interrupt took'; then fail "the kernel warns"; fi
    if grep -E 'WARNING:|BUG:|Call Trace|Oops|hung task' /tmp/messages; then fail "the kernel is unwell"; fi
}
