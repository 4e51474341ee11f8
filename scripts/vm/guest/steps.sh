#!/bin/busybox sh
# Each step is a function that fails when what it proves does not hold. Prints `step NAME ok|failed SECONDS`; what a failed
# step said comes before it.
. /usr/bin/lib.sh

step boot boot
step unbound_is_explained unbound_is_explained
step bind bind
step no_permission_is_explained no_permission
step devices devices
step info info
step info_as_user info_as_user
step busy_is_explained busy
step queue_pairs queue_pairs
step file file 256
step bandwidth bandwidth
step msix_wakes_sleeping_poll vm_guest interrupt $A $B
step wild_dma_is_stopped vm_guest wild $A $B
step removed_mapping_fails_its_qp_alone vm_guest unmapped $A $B
step reset_under_traffic vm_guest reset $A $B
step function_level_reset flr
step unbind_and_rebind rebind
step cycles cycles "$CYCLES"
step file_after_cycles file 64
step no_iommu_group_after_unbind unbind_all
step no_kernel_warning no_warning
