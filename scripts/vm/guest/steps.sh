#!/bin/busybox sh
# Each step is a function that fails when what it proves does not hold. Prints `begin NAME` and `step NAME ok|failed
# SECONDS`; what a failed step said comes between.
. /usr/bin/lib.sh

without_iommu() {
    step no_iommu_is_explained no_iommu
    step no_kernel_warning_without_iommu no_warning
}

all() {
    step boot boot
    step unbound_is_explained unbound_is_explained
    step other_driver_is_explained_and_gets_its_card_back other_driver
    step bind bind
    step no_permission_is_explained no_permission
    step devices devices
    step info info
    step info_as_user info_as_user
    step busy_is_explained busy
    step memory_on_the_cards_node near
    step queue_pairs queue_pairs
    step file file 256
    step bandwidth bandwidth
    step msix_wakes_sleeping_poll vm_guest interrupt $A $B
    step wild_dma_is_stopped vm_guest wild $A $B
    step removed_mapping_fails_its_qp_alone vm_guest unmapped $A $B
    step reset_under_traffic vm_guest reset $A $B
    step function_level_reset flr
    step unbind_and_rebind rebind
    LIMIT=600
    step cycles cycles "$CYCLES"
    LIMIT=$USUAL_LIMIT
    step file_after_cycles file 64
    step no_iommu_group_after_unbind unbind_all
    step no_kernel_warning no_warning
}

case $STEPS in
    no_iommu) without_iommu ;;
    *) all ;;
esac
