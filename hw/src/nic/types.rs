//! The records that travel between the blocks of the core. Each is one LogicStruct, so that a stream is a record, a
//! `valid` and a `ready`, and each has the meaning that `docs/architecture.md` follows through the card.
//!
//! Queue pair indices are 16 bits wide everywhere; a block's RAM uses the low `QPW` bits.
use rust_hdl_core::prelude::*;

/// A doorbell: the free-running producer (SQ, RQ) or consumer (CQ, EQ) index of queue `number`.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Doorbell {
    pub number: Bits<16>,
    pub index: Bits<16>,
    /// CQ only: the write was to the arm register.
    pub arm: bool,
}

/// A command for the owners of tables; held while `cfg_valid` until every owner has answered.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct CfgReq {
    /// `spec::command::Opcode`.
    pub op: Bits<4>,
    /// QPN, CQN, EQN or MR table index.
    pub index: Bits<24>,
    /// The argument window: the command's layout in `spec::command`.
    pub image: Bits<1024>,
}

/// A message whose WQE is fetched, checked and given PSNs, or the answer to a READ of the peer: what the
/// launched-message ring holds.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Launch {
    pub qpn: Bits<16>,
    /// Slot in the QP's ring (free-running launch count, low bits).
    pub slot: Bits<6>,
    /// Free-running index of the WQE in the send ring, for the CQE.
    pub wqe_index: Bits<16>,
    /// `spec::descriptor::WrOpcode`.
    pub opcode: Bits<8>,
    /// `spec::descriptor::WQE_*`.
    pub flags: Bits<8>,
    /// 0, or the `WcStatus` with which the message completes unsent.
    pub status: Bits<8>,
    pub first_psn: Bits<24>,
    /// 0 when `status` is not 0, else at least 1.
    pub packets: Bits<24>,
    /// IOVA of the payload's first byte.
    pub iova: Bits<64>,
    pub raddr: Bits<64>,
    pub rkey: Bits<32>,
    pub length: Bits<32>,
    pub imm: Bits<32>,
    /// ATOMIC: the value to swap in or to add, or, in the answer to one, what the memory held; the value to compare with.
    pub swap_add: Bits<64>,
    pub compare: Bits<64>,
    /// Receive WQE that the message takes at the peer, when it takes one; slot of a READ or ATOMIC or of the answer to one.
    pub wsn: Bits<24>,
    /// IBA code of the path MTU.
    pub mtu: Bits<3>,
    /// No WQE, no completion: the answer to a READ or ATOMIC of the peer (`opcode` says which), or, with the opcode of a
    /// WRITE, an empty WRITE that asks whether the peer is still there.
    pub response: bool,
}

/// Fetched work: `packets` more PSNs may be sent.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Work {
    pub qpn: Bits<16>,
    pub packets: Bits<24>,
    /// The message is flagged SYNC: its first packet waits (protocol section 6). The next such message of the QP comes
    /// only after `QpMark` told that this one began.
    pub sync: bool,
}

/// Something happened to QP `qpn`; the stream's name says what.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct QpMark {
    pub qpn: Bits<16>,
}

/// What one event of the sender engine did, for telemetry.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct SenderNote {
    pub qpn: Bits<16>,
    /// Packets sent: none, one or two, on these paths.
    pub sent_0: bool,
    pub sent_1: bool,
    pub vp_0: Bits<16>,
    pub vp_1: Bits<16>,
    /// Why: `spec::status::SendCause`.
    pub cause: Bits<2>,
    /// The second packet is a new one beside a retransmission.
    pub new_1: bool,
    /// Packets among them that probe a random path.
    pub probes: Bits<2>,
    /// A valid ACK or NAK came back on `ack_vp`.
    pub ack: bool,
    pub ack_vp: Bits<16>,
    pub ecn_echo: bool,
    /// The path was slow and pruned.
    pub prune: bool,
    pub window_nak: bool,
    pub sync_nak: bool,
    pub ghost: bool,
    pub timeout: bool,
    pub recovery: bool,
}

/// What one packet did at the receiver engine, for telemetry.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct ReceiverNote {
    pub qpn: Bits<16>,
    /// Placed; `distance` packets ahead of the next in order.
    pub accepted: bool,
    pub distance: Bits<8>,
    pub duplicate: bool,
    pub out_of_window: bool,
    pub sync_nak: bool,
    pub rnr_nak: bool,
    /// It was marked CE.
    pub marked: bool,
}

/// A message is done, in one step or in two: a READ, and what completes behind it, leaves the ring first.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Retired {
    pub qpn: Bits<16>,
    /// It left the launched-message ring, with so many PSNs.
    pub ring: bool,
    pub packets: Bits<24>,
    /// A work request is completed.
    pub own: bool,
}

/// An ACK or NAK that arrived, ICRC good, for the sender engine.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct AckEvent {
    pub qpn: Bits<16>,
    /// BTH PSN: the one packet that is answered.
    pub sack: Bits<24>,
    pub aack: Bits<24>,
    /// MPAETH flags.
    pub flags: Bits<8>,
    /// AETH syndrome.
    pub syndrome: Bits<8>,
    pub vp: Bits<16>,
    pub stamp: Bits<16>,
    /// SACK map, zero when the ACK has none.
    pub map: Bits<128>,
}

/// A QP must go to ERROR because of `status` (`WcStatus`).
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct QpError {
    pub qpn: Bits<16>,
    pub status: Bits<8>,
}

/// Permission to send one packet now.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Grant {
    pub qpn: Bits<16>,
    pub psn: Bits<24>,
    /// UDP source port.
    pub vp: Bits<16>,
    pub retx: bool,
    /// Nothing to send: tells the end of the pipeline that everything granted before has left.
    pub marker: bool,
}

/// Progress of a QP's send side: every PSN before `una` is acknowledged.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub qpn: Bits<16>,
    pub una: Bits<24>,
    /// Not 0: the QP is in ERROR; the oldest open message completes with this status, the rest is flushed.
    pub status: Bits<8>,
}

/// One data packet to build.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct PacketCmd {
    pub qpn: Bits<16>,
    pub vp: Bits<16>,
    pub psn: Bits<24>,
    /// BTH opcode.
    pub opcode: Bits<8>,
    /// MPETH flags.
    pub flags: Bits<8>,
    pub wsn: Bits<24>,
    pub offset: Bits<16>,
    pub raddr: Bits<64>,
    pub rkey: Bits<32>,
    /// Payload bytes of this packet, 0 to 4096; the payload follows on the payload stream when it is not 0.
    pub length: Bits<13>,
    /// RETH DMA length.
    pub dma_length: Bits<32>,
    pub imm: Bits<32>,
    /// AtomicETH's operands; AtomicAckETH's value is in `swap_add`.
    pub swap_add: Bits<64>,
    pub compare: Bits<64>,
    pub marker: bool,
}

/// One ACK or NAK to build.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct AckCmd {
    pub qpn: Bits<16>,
    pub sack: Bits<24>,
    pub aack: Bits<24>,
    pub msn: Bits<24>,
    pub syndrome: Bits<8>,
    /// MPAETH flags; bit 4 asks for the map.
    pub flags: Bits<8>,
    /// VP echo, and the UDP source port that the ACK leaves with.
    pub vp: Bits<16>,
    pub stamp: Bits<16>,
    pub map: Bits<128>,
}

/// What the parser found in a frame with a good ICRC.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct RxMeta {
    pub opcode: Bits<8>,
    pub qpn: Bits<24>,
    pub psn: Bits<24>,
    pub pkey: Bits<16>,
    /// The IP header carried CE.
    pub ce: bool,
    /// UDP source port.
    pub vp: Bits<16>,
    /// MPETH or MPAETH flags.
    pub flags: Bits<8>,
    pub wsn: Bits<24>,
    pub offset: Bits<16>,
    /// MPETH stamp or MPAETH stamp echo.
    pub stamp: Bits<16>,
    pub raddr: Bits<64>,
    pub rkey: Bits<32>,
    /// Of an ATOMIC request 8.
    pub dma_length: Bits<32>,
    pub imm: Bits<32>,
    /// AtomicETH's operands; AtomicAckETH's value is in `swap_add`.
    pub swap_add: Bits<64>,
    pub compare: Bits<64>,
    pub syndrome: Bits<8>,
    pub aack: Bits<24>,
    pub vp_echo: Bits<16>,
    pub map: Bits<128>,
    /// Payload bytes, pad and ICRC not counted. When not 0 and the packet is a data packet, the whole frame lies in
    /// the payload FIFO and must be taken or discarded in order.
    pub length: Bits<13>,
    /// Bytes before the payload.
    pub header: Bits<7>,
    /// The frame is in the payload FIFO.
    pub stored: bool,
}

/// Question to the memory region table: may `length` bytes at `va` be touched under `key`?
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct MrQuery {
    pub key: Bits<32>,
    pub va: Bits<64>,
    pub length: Bits<32>,
}

/// Answer of the memory region table, in the order of the questions. Rights and PD are for the asker to compare.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct MrAnswer {
    /// Key known and bounds kept.
    pub hit: bool,
    pub rights: Bits<8>,
    pub pd: Bits<16>,
    pub iova: Bits<64>,
}

/// Question to the READ book: where do the bytes of a READ RESPONSE packet, or the value of an ATOMIC ACK, go?
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct ReadQuery {
    pub qpn: Bits<16>,
    /// MPETH wsn: the slot.
    pub wsn: Bits<24>,
    /// MPETH offset.
    pub offset: Bits<16>,
    /// Of an ATOMIC ACK 8.
    pub length: Bits<13>,
    /// MPETH Tail.
    pub tail: bool,
    /// An ATOMIC ACK; it does not fit the slot of a READ, nor the other way round.
    pub atomic: bool,
}

/// A step of a queue pair's receive half that READs wait for. All that was placed before it is in host memory.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct ReadEvent {
    pub qpn: Bits<16>,
    /// Every PSN before it has arrived.
    pub aack: Bits<24>,
    /// A READ REQUEST or ATOMIC was accepted: PSN, slot, and what it asks for.
    pub request: bool,
    /// The last packet of a READ RESPONSE, or an ATOMIC ACK, was accepted: PSN and slot.
    pub tail: bool,
    pub psn: Bits<24>,
    pub slot: Bits<4>,
    pub iova: Bits<64>,
    pub length: Bits<32>,
    /// The request is an ATOMIC: compare and swap with `swap`, else fetch and add.
    pub atomic: bool,
    pub swap: bool,
    pub swap_add: Bits<64>,
    pub compare: Bits<64>,
    /// Nothing to do: tells that everything before is done.
    pub marker: bool,
}

/// A READ of the peer to answer now, or an ATOMIC of the peer that has been executed.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Respond {
    pub qpn: Bits<16>,
    /// Life of the queue pair in which the peer asked: each CREATE_QP begins one.
    pub life: Bits<4>,
    pub slot: Bits<4>,
    /// Where the data of a READ are; of an ATOMIC, what the memory held.
    pub iova: Bits<64>,
    pub length: Bits<32>,
    pub atomic: bool,
}

/// What became of a [`Respond`].
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Responded {
    pub qpn: Bits<16>,
    /// It was launched, or its queue pair has no use for it; if not, it is to be asked again.
    pub taken: bool,
}

/// An ATOMIC of the peer to execute now.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct AtomicOp {
    pub qpn: Bits<16>,
    /// Where the 8 bytes are.
    pub iova: Bits<64>,
    /// Compare and swap; if not, fetch and add.
    pub swap: bool,
    pub swap_add: Bits<64>,
    pub compare: Bits<64>,
}

/// An ATOMIC that has been executed: its new value is on the bus.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct AtomicResult {
    pub qpn: Bits<16>,
    /// What the memory held before.
    pub original: Bits<64>,
    /// The memory could not be read, and nothing was written.
    pub failed: bool,
}

/// An arriving request packet, for the receiver engine.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct RxEvent {
    /// 0 data packet, 1 only discard the stored frame, 2 RQ doorbell (`wsn` low 16 bits: the index), 3 QP error.
    pub kind: Bits<2>,
    pub qpn: Bits<16>,
    pub psn: Bits<24>,
    pub opcode: Bits<8>,
    pub pkey: Bits<16>,
    pub ce: bool,
    pub vp: Bits<16>,
    pub flags: Bits<8>,
    pub wsn: Bits<24>,
    pub offset: Bits<16>,
    pub stamp: Bits<16>,
    pub imm: Bits<32>,
    pub dma_length: Bits<32>,
    pub length: Bits<13>,
    pub header: Bits<7>,
    pub stored: bool,
    pub mr: MrAnswer,
    /// As in `RxMeta`.
    pub swap_add: Bits<64>,
    pub compare: Bits<64>,
    /// An ATOMIC request whose address is not a multiple of 8.
    pub misaligned: bool,
}

/// What becomes of one arriving packet; carried out in order by the placement block.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct RxAction {
    pub qpn: Bits<16>,
    /// Write the stored frame's payload to memory.
    pub place: bool,
    /// Throw the stored frame away.
    pub discard: bool,
    pub iova: Bits<64>,
    pub length: Bits<13>,
    pub header: Bits<7>,
    /// Answer with `ack`, after the payload is on its way to memory.
    pub ack_valid: bool,
    pub ack: AckCmd,
    /// Keep immediate and length of receive WQE `wsn` until its completion is due.
    pub store: bool,
    /// Receive WQE, or slot of a READ.
    pub wsn: Bits<24>,
    pub imm: Bits<32>,
    /// Bytes of the message, or those that a READ REQUEST asks for, from `iova` on.
    pub byte_len: Bits<32>,
    /// A READ REQUEST or ATOMIC, of PSN `ack.sack`.
    pub request: bool,
    /// The last packet of a READ RESPONSE, or an ATOMIC ACK, of PSN `ack.sack`.
    pub read_tail: bool,
    /// An ATOMIC request, compare and swap with `swap`; or, with `place`, an ATOMIC ACK: `swap_add` goes to memory, in the
    /// host's byte order, and no frame is stored.
    pub atomic: bool,
    pub swap: bool,
    pub swap_add: Bits<64>,
    pub compare: Bits<64>,
    /// `ack.aack` moved: READs that wait for it may go on.
    pub advances: bool,
    /// Completions that are due now, from `due_wsn` on, to CQ `cqn`.
    pub due: Bits<8>,
    pub due_wsn: Bits<24>,
    pub cqn: Bits<16>,
    /// Nothing to do: tells the end of the pipeline that everything before is done.
    pub marker: bool,
}

/// A completion to write.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct Completion {
    pub cqn: Bits<16>,
    pub qpn: Bits<16>,
    pub wqe_index: Bits<16>,
    pub byte_len: Bits<32>,
    pub imm: Bits<32>,
    pub with_imm: bool,
    /// `WcStatus`.
    pub status: Bits<8>,
    /// `WcOpcode`.
    pub opcode: Bits<8>,
}

/// An asynchronous event to write to EQ 0.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct AsyncEvent {
    /// `EventType`.
    pub kind: Bits<8>,
    pub code: Bits<8>,
    pub number: Bits<24>,
}

/// A read that a client asks of the DMA read engine: 1 to 4096 bytes, any alignment.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct DmaReadReq {
    pub iova: Bits<64>,
    pub length: Bits<13>,
}

/// A write that a client asks of the DMA write engine; its data follow on the client's beat stream from byte 0.
#[derive(LogicStruct, Copy, Clone, Debug, Default, PartialEq)]
pub struct DmaWriteReq {
    pub iova: Bits<64>,
    pub length: Bits<13>,
    /// Bytes of the client's stream before the first byte to write (a frame's headers).
    pub skip: Bits<7>,
}
