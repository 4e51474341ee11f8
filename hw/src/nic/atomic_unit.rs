//! Executes ATOMICs of the peers: one at a time, so each is atomic against every other of this card.

use super::types::{AtomicOp, AtomicResult, DmaReadReq, DmaWriteReq, QpError};
use crate::leaf::{Beat, SyncFifo};
use crate::prelude::*;
use mprdma_spec::params::ATOMIC_BYTES;
use mprdma_spec::status::WcStatus;

#[derive(LogicState, Copy, Clone, Debug, PartialEq)]
enum Step {
    Pick,
    Ask,
    Wait,
    Compute,
    Write,
    Settle,
    Tell,
}

block! {
    /// Reads 8 bytes, writes what an ATOMIC makes of them, and tells what they were (IBA 9.4.5).
    ///
    /// - In: `op`, executed in order; `read` and `read_err` of the DMA read client; `written`, a pulse when a write of this
    ///   block is on the bus.
    /// - Out: `read_req` (8 bytes); `request` and `data` for the DMA write engine, unless a compare and swap found another
    ///   value; `result`, when the write is on the bus, so that whatever is read after it is read as written; `error` and
    ///   the pulse `cnt_failed`, when the memory could not be read: then nothing is written.
    /// - Memory is little-endian, as the host is.
    /// - Latency: 5 cycles from `op` to `read_req`'s acceptance and from `read` to `request`, and one more to `result`
    ///   after `written`. The next ATOMIC begins when `result` is taken.
    pub struct AtomicUnit {
        in {
            clock: Clock,
            reset: Bit,
            op: AtomicOp,
            op_valid: Bit,
            read: Beat,
            read_valid: Bit,
            read_err: Bit,
            written: Bit,
            read_req_ready: Bit,
            request_ready: Bit,
            data_ready: Bit,
            result_ready: Bit,
            error_ready: Bit,
        }
        out {
            op_ready: Bit,
            read_ready: Bit,
            read_req: DmaReadReq,
            read_req_valid: Bit,
            request: DmaWriteReq,
            request_valid: Bit,
            data: Beat,
            data_valid: Bit,
            result: AtomicResult,
            result_valid: Bit,
            error: QpError,
            error_valid: Bit,
            cnt_executed: Bit,
            cnt_failed: Bit,
            busy: Bit,
        }
        local {
            asks: DmaReadReq,
            writes: DmaWriteReq,
            beat: Beat,
            tells: AtomicResult,
            failure: QpError,
            stores: Bit,
            room: Bit,
        }
        reg {
            step: Step = Step::Pick,
            pulse_executed: Bit,
            pulse_failed: Bit,
        }
        pipe {
            item: AtomicOp,
            original: Bits<64>,
            value: Bits<64>,
            failed: Bit,
        }
        konst {
            size: Bits<13> = bits(ATOMIC_BYTES as u64),
            size_beat: Bits<7> = bits(ATOMIC_BYTES as u64),
            fatal: Bits<8> = bits(WcStatus::FatalError as u64),
        }
        sub {
            ops: SyncFifo<AtomicOp, 2> = SyncFifo::shallow(),
            reads: SyncFifo<DmaReadReq, 2> = SyncFifo::shallow(),
            requests: SyncFifo<DmaWriteReq, 2> = SyncFifo::shallow(),
            beats: SyncFifo<Beat, 2> = SyncFifo::shallow(),
            results: SyncFifo<AtomicResult, 2> = SyncFifo::shallow(),
            errors: SyncFifo<QpError, 2> = SyncFifo::shallow(),
        }
    }
}

impl Logic for AtomicUnit {
    #[hdl_gen]
    fn update(&mut self) {
        dff_setup!(
            self,
            clock,
            step,
            pulse_executed,
            pulse_failed,
            item,
            original,
            value,
            failed
        );
        clock!(self, clock, ops, reads, requests, beats, results, errors);
        self.ops.reset.next = self.reset.val();
        self.reads.reset.next = self.reset.val();
        self.requests.reset.next = self.reset.val();
        self.beats.reset.next = self.reset.val();
        self.results.reset.next = self.reset.val();
        self.errors.reset.next = self.reset.val();
        self.ops.in_data.next = self.op.val();
        self.ops.in_valid.next = self.op_valid.val();
        self.op_ready.next = self.ops.in_ready.val();
        self.read_req.next = self.reads.out_data.val();
        self.read_req_valid.next = self.reads.out_valid.val();
        self.reads.out_ready.next = self.read_req_ready.val();
        self.request.next = self.requests.out_data.val();
        self.request_valid.next = self.requests.out_valid.val();
        self.requests.out_ready.next = self.request_ready.val();
        self.data.next = self.beats.out_data.val();
        self.data_valid.next = self.beats.out_valid.val();
        self.beats.out_ready.next = self.data_ready.val();
        self.result.next = self.results.out_data.val();
        self.result_valid.next = self.results.out_valid.val();
        self.results.out_ready.next = self.result_ready.val();
        self.error.next = self.errors.out_data.val();
        self.error_valid.next = self.errors.out_valid.val();
        self.errors.out_ready.next = self.error_ready.val();

        comment!("defaults");
        self.ops.out_ready.next = false;
        self.reads.in_valid.next = false;
        self.requests.in_valid.next = false;
        self.beats.in_valid.next = false;
        self.results.in_valid.next = false;
        self.errors.in_valid.next = false;
        self.pulse_executed.d.next = false;
        self.pulse_failed.d.next = false;

        comment!("outputs");
        self.asks.next.iova = self.item.q.val().iova;
        self.asks.next.length = self.size.val();
        self.reads.in_data.next = self.asks.val();
        self.writes.next.iova = self.item.q.val().iova;
        self.writes.next.length = self.size.val();
        self.writes.next.skip = bits::<7>(0);
        self.requests.in_data.next = self.writes.val();
        self.beat.next.data = bit_cast::<512, 64>(self.value.q.val());
        self.beat.next.nbytes = self.size_beat.val();
        self.beat.next.last = true;
        self.beats.in_data.next = self.beat.val();
        self.tells.next.qpn = self.item.q.val().qpn;
        self.tells.next.original = self.original.q.val();
        self.tells.next.failed = self.failed.q.val();
        self.results.in_data.next = self.tells.val();
        self.failure.next.qpn = self.item.q.val().qpn;
        self.failure.next.status = self.fatal.val();
        self.errors.in_data.next = self.failure.val();

        comment!("one ATOMIC");
        self.read_ready.next = self.step.q.val() == Step::Wait;
        self.stores.next = !self.failed.q.val()
            & (!self.item.q.val().swap | (self.original.q.val() == self.item.q.val().compare));
        self.room.next = self.requests.in_ready.val() & self.beats.in_ready.val();
        match self.step.q.val() {
            Step::Pick => {
                self.item.d.next = self.ops.out_data.val();
                self.ops.out_ready.next = true;
                if self.ops.out_valid.val() {
                    self.step.d.next = Step::Ask;
                }
            }
            Step::Ask => {
                self.reads.in_valid.next = true;
                if self.reads.in_ready.val() {
                    self.step.d.next = Step::Wait;
                }
            }
            Step::Wait => {
                self.original.d.next = self.read.val().data.get_bits::<64>(0);
                self.failed.d.next = self.read_err.val();
                if self.read_valid.val() {
                    self.step.d.next = Step::Compute;
                }
            }
            Step::Compute => {
                self.value.d.next = self.original.q.val() + self.item.q.val().swap_add;
                if self.item.q.val().swap {
                    self.value.d.next = self.item.q.val().swap_add;
                }
                self.step.d.next = Step::Tell;
                if self.stores.val() {
                    self.step.d.next = Step::Write;
                }
            }
            Step::Write => {
                if self.room.val() {
                    self.requests.in_valid.next = true;
                    self.beats.in_valid.next = true;
                    self.step.d.next = Step::Settle;
                }
            }
            Step::Settle => {
                if self.written.val() {
                    self.step.d.next = Step::Tell;
                }
            }
            Step::Tell => {
                if self.results.in_ready.val() & self.errors.in_ready.val() {
                    self.results.in_valid.next = true;
                    self.errors.in_valid.next = self.failed.q.val();
                    self.pulse_executed.d.next = !self.failed.q.val();
                    self.pulse_failed.d.next = self.failed.q.val();
                    self.step.d.next = Step::Pick;
                }
            }
            _ => {}
        }

        self.cnt_executed.next = self.pulse_executed.q.val();
        self.cnt_failed.next = self.pulse_failed.q.val();
        self.busy.next = (self.step.q.val() != Step::Pick)
            | self.ops.count.val().any()
            | self.results.count.val().any()
            | self.errors.count.val().any();
    }
}
